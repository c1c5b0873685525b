"""What the docstrings and MATH say of rates, measured."""

import math

import pytest
import torch

from interp.solvers import (
    EAGLE,
    T3,
    THEORY,
    ChebyshevSemiIteration,
    ConjugateGradient,
    DistributedEAGLE,
    GDPlusPlus,
    GradientDescent,
    KernelSystem,
    LeastSquares,
    Preconditioned,
    PreconditionedDescent,
    SteepestDescent,
    iterate,
    jacobi,
    row_sums,
)
from tests.interp.solvers.cases import kernel, many_rows, ridge, squares


def log_uniform(kappa: float, count: int = 200) -> LeastSquares:
    """Many eigenvalues at once: A = diag σ, the solution all ones."""
    sigma = torch.logspace(0, -math.log10(kappa), count, dtype=torch.float64)
    return LeastSquares(torch.diag(sigma)[None], sigma[None, :, None])


@pytest.mark.parametrize(("point", "counts"), [(THEORY, [10, 16, 21, 27, 33]), (T3, [18, 20, 22, 24, 26])])
def test_eagle_iterations_to_1e_8(point: tuple[float, float], counts: list[int]):
    """MATH §4: rms error 1e-8 at κ = 1e1 … 1e5."""
    errors = [
        (iterate(EAGLE(*point), log_uniform(10.0**k), 40) - 1).square().mean((1, 2, 3)).sqrt() for k in range(1, 6)
    ]
    assert [int((error < 1e-8).nonzero()[0]) for error in errors] == counts


def test_published_constants_stall_with_the_exact_norm():
    """(−1, 1.9) sends σ = ‖A_l‖ to 0 with 1 − 1.9 of its error left."""
    error = iterate(EAGLE(-1.0, 1.9), log_uniform(10.0), 60)[-1] - 1
    assert float(error.abs().max()) == pytest.approx(0.9)


def test_gd_plus_plus_is_sublinear_in_the_end():
    """Error ∝ l^(−γ/2|η|): with γ = 2|η| it halves when the layers double, whatever the eigenvalue."""
    w = iterate(GDPlusPlus(-0.25, 0.5), log_uniform(3.0, 5), 4000)
    ratio = (1 - w[4000]) / (1 - w[2000])
    assert torch.allclose(ratio, torch.full_like(ratio, 0.5), atol=0.01)


def test_distributed_eagle_with_exact_labels():
    """T₃ steps converge on machines that share a row space, slower on machines that do not; theory's stall."""
    exact, narrow = many_rows(noise=0.0), squares(n=12, noise=0.0)
    shared = relative(DistributedEAGLE(4), exact, 40)
    apart = relative(DistributedEAGLE(6), narrow, 150)
    assert shared[-1] < 1e-10 < apart[40]
    assert apart[-1] < 1e-3 < apart[20]
    assert relative(DistributedEAGLE(4, *THEORY), exact, 40)[-1] > 1e-3


def relative(solver, problem: LeastSquares, steps: int) -> torch.Tensor:
    solution = torch.linalg.pinv(problem.A) @ problem.C
    return (iterate(solver, problem, steps) - solution).flatten(1).norm(dim=1) / solution.norm()


@pytest.mark.parametrize(
    "solver", [GradientDescent(), SteepestDescent(), ChebyshevSemiIteration(), ConjugateGradient()]
)
def test_errors_stay_below_their_proven_rate(solver):
    problem = squares(kappa=8.0)
    root = 8.0
    slow, fast = (root**2 - 1) / (root**2 + 1), (root - 1) / (root + 1)
    error = iterate(solver, problem, 30) - torch.linalg.pinv(problem.A) @ problem.C
    energy = (error * (problem.G @ error)).sum((-2, -1)).sqrt()
    k = torch.arange(31, dtype=torch.float64)[:, None]
    accelerated = isinstance(solver, ChebyshevSemiIteration | ConjugateGradient)
    bound = 2 * fast**k if accelerated else slow**k
    assert (energy <= bound * energy[0] * (1 + 1e-9) + 1e-14).all()


@pytest.mark.parametrize("lam", [0.01, 0.5, 5.0])
def test_row_sums_bound_the_spectrum(lam: float):
    """spec(P⁻¹(K + λI)) ⊂ [λ/(D_max + λ), 1], clustered inputs or not: ω = 1 is never refused (MATH §6)."""
    x = torch.cat([torch.randn(5, 20, generator=torch.Generator().manual_seed(0)).double() * s for s in (0.05, 1)], 1)
    K = torch.exp(-((x[:, :, None] - x[:, None]) ** 2) / 2)
    system = KernelSystem(K, torch.sin(x)[..., None], lam)
    state = Preconditioned(GradientDescent(1.0), row_sums).start(system)
    values = torch.linalg.eigvalsh(state["system"].G)
    low = lam / (K.sum(-1).amax(1) + lam)
    assert (values[:, 0] >= low * (1 - 1e-9)).all()
    assert (values[:, -1] <= 1 + 1e-9).all()


@pytest.mark.parametrize(("inverse", "build"), [(jacobi, ridge), (row_sums, kernel)])
def test_two_ways_to_precondition_descent(inverse, build):
    problem = build()
    split, direct = Preconditioned(GradientDescent(0.4), inverse), PreconditionedDescent(inverse, 0.4)
    assert torch.allclose(iterate(split, problem, 20), iterate(direct, problem, 20), atol=1e-12)
