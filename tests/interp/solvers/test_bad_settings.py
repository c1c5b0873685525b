"""Settings that diverge, stand still or do not fit: one sentence each, with the bound where there is one."""

import numpy as np
import pytest
import torch

from interp.solvers import (
    DANE,
    EAGLE,
    AcceleratedDistributedEAGLE,
    ChebyshevNodes,
    ChebyshevSemiIteration,
    DistributedEAGLE,
    FunctionalGradientDescent,
    GDPlusPlus,
    GradientAveraging,
    GradientDescent,
    HeavyBall,
    LeastMeanSquares,
    LeastSquares,
    LowRankNewton,
    Nesterov,
    Newton,
    Preconditioned,
    PreconditionedDescent,
    PseudoInverseEAGLE,
    RecursiveLeastSquares,
    SketchedEAGLE,
    iterate,
    jacobi,
    row_sums,
)
from tests.interp.solvers.cases import W, kernel, ridge, squares

EYE = torch.eye(4, dtype=torch.float64)
ONES = torch.ones(4, 4, dtype=torch.float64)

# the largest eigenvalue of AᵀA is 1 on these problems; test_bounds_are_sharp shows that the bounds are exact
REFUSED = {
    "descent": (lambda: GradientDescent(2.1), r"step_size=2.1 diverges.*2/λ_max = 2"),
    "descent, negative": (lambda: GradientDescent(-0.1), r"diverges or stands still.*2/λ_max = 2"),
    "descent, NaN": (lambda: GradientDescent(float("nan")), r"step_size=nan diverges"),
    "descent, schedule": (lambda: GradientDescent((0.5, 0.0)), r"step_size=0.0 diverges or stands still"),
    "descent, short schedule": (lambda: GradientDescent((0.5,)), r"step_size has 1 entries; ask for at most as many"),
    "heavy ball": (lambda: HeavyBall(3.1, 0.5), r"2\(1 \+ β\)/λ_max = 3"),
    "heavy ball, momentum": (lambda: HeavyBall(0.5, 1.0), r"momentum=1.0 must be at least 0 and below 1"),
    "Nesterov": (lambda: Nesterov(1.6, 0.5), r"2\(1 \+ β\)/\(\(1 \+ 2β\)λ_max\) = 1.5"),
    "Nesterov, negative": (lambda: Nesterov(-1.0), r"Nesterov: step_size=-1.0 diverges or stands still"),
    "Nesterov, momentum": (lambda: Nesterov(0.5, -0.1), r"momentum=-0.1 must be at least 0"),
    "Chebyshev": (lambda: ChebyshevSemiIteration((0.1, 0.9)), r"upper end must be at least λ_max = 1"),
    "Chebyshev, order": (lambda: ChebyshevSemiIteration((2.0, 1.0)), r"interval=\(2.0, 1.0\) must be 0 < low ≤ high"),
    "nodes": (lambda: ChebyshevNodes(3, (0.0, 1.0)), r"must be 0 < low ≤ high"),
    "nodes, none": (lambda: ChebyshevNodes(0), r"cycle=0 must be at least 1"),
    "preconditioned": (lambda: PreconditionedDescent(EYE, 2.1), r"2/λ_max\(P⁻¹G\) = 2"),
    "preconditioned, indefinite": (lambda: PreconditionedDescent(-EYE), r"symmetric positive definite and finite"),
    "preconditioned, singular": (lambda: Preconditioned(GradientDescent(), ONES), r"symmetric positive definite"),
    "preconditioned, shape": (
        lambda: Preconditioned(GradientDescent(), EYE[:3]),
        r"be \[4, 4\] or a diagonal \[4, 1\].*got \[3, 4\]",
    ),
    "preconditioned, diagonal": (lambda: PreconditionedDescent(-EYE[:, :1]), r"symmetric positive definite and finite"),
    "preconditioned, skew": (lambda: PreconditionedDescent(ONES.triu()), r"symmetric positive definite and finite"),
    "preconditioned, batch": (lambda: PreconditionedDescent(W.expand(2, 4, 4)), r"got \[2, 4, 4\]"),
    "preconditioned, schedule": (lambda: PreconditionedDescent((W,)), r"preconditioner has 1 entries"),
    "split": (lambda: Preconditioned(GradientDescent(1.1), 2 * EYE), r"2/λ_max = 1"),
    "row sums": (lambda: Preconditioned(GradientDescent(), row_sums), r"solves a KernelSystem, got a LeastSquares"),
    "functional": (lambda: FunctionalGradientDescent(), r"solves a KernelSystem, got a LeastSquares"),
    "Newton": (lambda: Newton(2.0), r"step_size=2.0 diverges.*= 2"),
    "Newton, 0": (lambda: Newton(0.0), r"step_size=0.0 diverges or stands still"),
    "low rank": (lambda: LowRankNewton(5), r"rank=5 must lie between 1 and the 4 columns"),
    "low rank, damping": (lambda: LowRankNewton(2, -1.0), r"damping=-1.0 must be finite and at least 0"),
    "GD++": (lambda: GDPlusPlus(-0.1, 2.0), r"gamma=2.0 diverges.*2/λ_max = 2"),
    "GD++, η": (lambda: GDPlusPlus(0.1, 1.0), r"eta=0.1 diverges; it must be at most 0 and above -2/λ_max = -2"),
    "EAGLE, η": (lambda: EAGLE(0.1, 1.0), r"eta=0.1 diverges in units of 1/‖A‖².*above -2"),
    "EAGLE, γ": (lambda: EAGLE(-0.1, 2.0), r"gamma=2.0 diverges or stands still.*between 0 and 2"),
    "EAGLE, schedule": (lambda: EAGLE((-0.3,), 1.0), r"eta has 1 entries"),
    "EAGLE, NaN": (lambda: EAGLE((float("nan"), 0.0), 1.0), r"eta=\(nan, 0.0\) holds NaN or inf"),
    "EAGLE, tensor": (lambda: EAGLE(torch.tensor(-5.0)), r"eta=-5.0 diverges in units of 1/‖A‖²"),
    "EAGLE, NumPy": (lambda: EAGLE(np.float32(-5)), r"eta=-5.0 diverges in units of 1/‖A‖²"),
    "EAGLE, None": (lambda: EAGLE(None), r"eta=None must be a number, or a sequence or tensor \[step\]"),
    "EAGLE, word": (lambda: EAGLE("-1"), r"eta='-1' must be a number"),
    "EAGLE, table": (lambda: EAGLE(torch.zeros(2, 2)), r"must be a number, or a sequence or tensor \[step\]"),
    "EAGLE, nested": (lambda: EAGLE([[0.0, -0.1]]), r"must be a number, or a sequence or tensor \[step\]"),
    "EAGLE, NaN in a tensor": (lambda: EAGLE(torch.tensor([torch.nan, 0.0])), r"holds NaN or inf"),
    "EAGLE, half an iteration": (lambda: EAGLE(power_iterations=1.5), r"power_iterations=1.5 must be a whole number"),
    "EAGLE, seed": (lambda: EAGLE(seed=0.5), r"seed=0.5 must be a whole number"),
    "EAGLE, norms": (lambda: EAGLE(norms=[1.0]), r"norms has 1 entries"),
    "EAGLE, norm 0": (lambda: EAGLE(norms=[1.0, 0.0]), r"norms must be positive"),
    "EAGLE, norms of a batch": (lambda: EAGLE(norms=torch.ones(2, 5)), r"\[step\] or \[step, 3\], got \[2, 5\]"),
    "EAGLE, iterations": (lambda: EAGLE(power_iterations=0), r"power_iterations=0 must be at least 1, or left out"),
    "EAGLE, two norms": (lambda: EAGLE(norms=[1.0, 1.0], power_iterations=3), r"two ways to set ν; give one"),
    "A⁺, γ": (lambda: PseudoInverseEAGLE(-0.1, 2.0), r"PseudoInverseEAGLE: gamma=2.0 diverges or stands still"),
    "A⁺, norms": (lambda: PseudoInverseEAGLE(norms=[1.0]), r"PseudoInverseEAGLE: norms has 1 entries"),
    "sketch": (lambda: SketchedEAGLE(5), r"sketch=5 must lie between 1 and the 4 columns"),
    "sketch, none": (lambda: SketchedEAGLE(0), r"sketch=0 must lie between 1 and the 4 columns"),
    "sketch, part": (lambda: SketchedEAGLE(2.5), r"sketch=2.5 must be a whole number"),
    "sketch, None": (lambda: SketchedEAGLE(None), r"sketch=None must be a whole number"),
    "sketch, short schedule": (lambda: SketchedEAGLE(2, (-0.1,), 1.0), r"SketchedEAGLE: eta has 1 entries"),
    "sketch, η": (lambda: SketchedEAGLE(2, 0.1), r"SketchedEAGLE: eta=0.1 diverges"),
    "LMS": (lambda: LeastMeanSquares(50.0), r"2/max ‖a‖²"),
    "RLS": (lambda: RecursiveLeastSquares(0.0), r"penalty=0.0 must be finite and greater than 0"),
    "RLS, forgetting": (
        lambda: RecursiveLeastSquares(1.0, 1.1),
        r"forgetting=1.1 must be greater than 0 and at most 1",
    ),
    "averaging": (lambda: GradientAveraging(3, 6.1), r"2M/λ_max = 6"),
    "machines": (lambda: GradientAveraging(5), r"machines=5 must be at least 1 and divide the 12 rows"),
    "no machine": (lambda: DistributedEAGLE(0), r"machines=0 must be at least 1"),
    "machines, float": (lambda: DistributedEAGLE(2.0), r"machines=2.0 must be a whole number"),
    "machines, float, averaging": (lambda: GradientAveraging(3.0), r"machines=3.0 must be a whole number"),
    "query, NaN": (
        lambda: DistributedEAGLE(3, query=(float("nan"), 1.0)),
        r"query's eta=nan diverges in units of 1/‖A‖²",
    ),
    "query, large": (lambda: DistributedEAGLE(3, query=(-1.0, 5.0)), r"query's gamma=5.0 diverges or stands still"),
    "query, one": (lambda: DistributedEAGLE(3, query=(-1.0,)), r"query=\(-1.0,\) must be a pair"),
    "accelerated, schedule": (lambda: AcceleratedDistributedEAGLE(3, (-0.1, -0.2)), r"is a schedule; give one number"),
    "nodes, float": (lambda: ChebyshevNodes(2.5), r"cycle=2.5 must be a whole number"),
    "low rank, float": (lambda: LowRankNewton(1.5), r"rank=1.5 must be a whole number"),
    "accelerated": (lambda: AcceleratedDistributedEAGLE(5), r"machines=5 must be at least 1 and divide the 12 rows"),
    "accelerated, η": (lambda: AcceleratedDistributedEAGLE(3, 0.1), r"eta=0.1 diverges in units of 1/‖A‖²"),
    "DANE": (lambda: DANE(3, 0.01), r"step_size=1.0 diverges.*2/λ_max\(mean"),
    "DANE, singular": (lambda: DANE(4), r"Hessian is singular; give regularisation > 0 or more rows"),
    "DANE, negative": (lambda: DANE(3, -1.0), r"regularisation=-1.0 must be finite and at least 0"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_sentence(name: str):
    build, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        iterate(build(), squares(), 2)


@pytest.mark.parametrize("steps", [0, -3])
def test_at_least_one_step(steps: int):
    with pytest.raises(ValueError, match=f"steps={steps} must be a whole number of at least 1"):
        iterate(GradientDescent(), squares(), steps)


@pytest.mark.parametrize("solver", [LeastMeanSquares(0.5), RecursiveLeastSquares(1.0)])
def test_one_pass_over_the_rows(solver):
    with pytest.raises(ValueError, match="has read all 12; ask for fewer steps"):
        iterate(solver, squares(), 13)


@pytest.mark.parametrize("solver", [EAGLE(), GDPlusPlus(-0.1, 1.0), LeastMeanSquares(0.5), DANE(3, 1.0)])
def test_row_methods_know_of_no_ridge_and_no_kernel(solver):
    with pytest.raises(ValueError, match=r"has no ridge term, but lam=0.3"):
        iterate(solver, ridge(), 1)
    with pytest.raises(ValueError, match="solves a LeastSquares, got a KernelSystem"):
        iterate(solver, kernel(), 1)


def test_row_sums_need_a_positive_kernel():
    system = kernel()
    signs = torch.tensor([1.0, -1, 1, -1, 1, -1, 1], dtype=torch.float64)
    flipped = type(system)(system.K * signs[:, None] * signs, system.y, 1e-3)
    with pytest.raises(ValueError, match="give a kernel without negative entries"):
        iterate(Preconditioned(GradientDescent(1.0), row_sums), flipped, 1)
    assert iterate(Preconditioned(GradientDescent(), jacobi), flipped, 1).isfinite().all()


SHARP = [
    (GradientDescent, 2.0),
    (lambda eta: HeavyBall(eta, 0.5), 3.0),
    (lambda eta: Nesterov(eta, 0.5), 1.5),
    (lambda eta: PreconditionedDescent(0.5 * EYE, eta), 4.0),
]


@pytest.mark.parametrize(("build", "bound"), SHARP)
def test_bounds_are_sharp(build, bound: float):
    """1 % inside its bound a method contracts; with the same settings on a G 2 % larger (refused at start) it grows."""
    case = squares(noise=0.0)
    larger, solver = LeastSquares(case.A * 1.02**0.5, case.C * 1.02**0.5), build(bound * 0.99)
    solution = torch.linalg.lstsq(case.A, case.C).solution
    with pytest.raises(ValueError, match="diverges"):
        solver.start(larger)
    inside = outside = solver.start(case)
    for _ in range(1000):
        inside, outside = solver.step(case, inside), solver.step(larger, outside)
    assert (inside["w"] - solution).norm() < 0.1 * solution.norm()
    assert (outside["w"] - solution).norm() > 10 * solution.norm()


ETA, GAMMA = (-1.0, -0.3, -0.2, -0.1), (0.5, 1.0, 1.5, 0.7)  # as many as columns


@pytest.mark.parametrize(
    "build",
    [
        EAGLE,
        PseudoInverseEAGLE,
        lambda *pair: SketchedEAGLE(2, *pair),
        lambda *pair: DistributedEAGLE(3, *pair),
        lambda *pair: DistributedEAGLE(3, query=pair),
        lambda eta, gamma: GradientDescent(gamma),
    ],
)
@pytest.mark.parametrize("make", [torch.tensor, np.array, list])
def test_tensors_and_arrays_are_schedules(build, make):
    case = squares()
    expected = iterate(build(ETA, GAMMA), case, 4)
    assert torch.allclose(iterate(build(make(ETA), make(GAMMA)), case, 4), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="has 4 entries; ask for at most as many steps"):
        iterate(build(make(ETA), make(GAMMA)), case, 5)
