"""The stopping rule, and steps that diverge."""

import pytest
import torch

from interp.solvers import (
    EAGLE,
    T3,
    THEORY,
    AcceleratedDistributedEAGLE,
    ChebyshevSemiIteration,
    ClosedForm,
    ConjugateGradient,
    DistributedEAGLE,
    GradientDescent,
    LeastSquares,
    NewtonSchulz,
    PseudoInverseEAGLE,
    SketchedEAGLE,
    iterate,
    solve,
)
from tests.interp.solvers.cases import kernel, ridge, squares
from tests.interp.solvers.test_eagle import spread

SOLVERS = [EAGLE(), GradientDescent(), ConjugateGradient(), ChebyshevSemiIteration(), NewtonSchulz(), ClosedForm()]


def by_hand(problem, w):
    G, moment = problem.G.numpy(), problem.moment.numpy()
    prompts = zip(G, w, moment, strict=True)
    return torch.tensor([float(((g @ x - m) ** 2).sum() ** 0.5 / (m**2).sum() ** 0.5) for g, x, m in prompts])


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_a_prompt_stops_at_its_first_step_below_the_tolerance(solver):
    problem = squares()
    found = solve(solver, problem, tolerance=1e-7, max_steps=400)
    w = iterate(solver, problem, int(found.steps.max()))
    residuals = torch.stack([by_hand(problem, step.numpy()) for step in w])
    assert found.converged.all() and not found.at_floor.any()
    for prompt, step in enumerate(found.steps.tolist()):
        assert residuals[step, prompt] <= 1e-7 < residuals[:step, prompt].min()
        assert torch.equal(found.w[prompt], w[step, prompt])
        assert found.residual[prompt] == pytest.approx(float(residuals[step, prompt]), rel=1e-4)
    assert str(found).startswith("converged: ")


def test_prompts_stop_by_themselves():
    """One prompt is solved after a few steps, the other takes many more."""
    rows = torch.stack([torch.diag(torch.tensor([1.0, 0.99])), torch.diag(torch.tensor([1.0, 0.1]))]).double()
    found = solve(GradientDescent(), LeastSquares(rows, torch.ones(2, 2, 1).double()), max_steps=3000)
    assert found.converged.all() and found.steps[0] < 8 and found.steps[1] > 500


def test_not_converged_is_said():
    found = solve(GradientDescent(), squares(), tolerance=1e-8, max_steps=3)
    assert not found.converged.any() and (found.steps == 3).all() and (found.residual > 1e-8).all()
    assert str(found).startswith("NOT converged on 3 of 3 prompts: 3 steps")
    assert found.to_dict()["converged"] == [False] * 3


def test_stops_at_rounding_and_says_so():
    """In single precision 1e-12 is out of reach: more steps would only feed rounding in the null space."""
    problem = squares(rank=2)
    single = LeastSquares(problem.A.float(), problem.C.float())
    found = solve(EAGLE(), single, tolerance=1e-12, max_steps=100)
    exact = torch.linalg.pinv(problem.A, rtol=1e-10) @ problem.C
    assert found.at_floor.all() and not found.converged.any() and found.steps.max() < 25
    assert torch.allclose(found.w.double(), exact, atol=1e-4)
    assert "3 at the rounding floor" in str(found)


@pytest.mark.parametrize("problem", [ridge(), kernel()], ids=["ridge", "kernel"])
def test_other_problems(problem):
    found = solve(ConjugateGradient(), problem, tolerance=1e-10)
    assert found.converged.all()
    assert torch.allclose(found.w, torch.linalg.solve(problem.G, problem.moment), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("point", [THEORY, T3])
@pytest.mark.parametrize("kappa", [10.0, 1e3, 1e5])
def test_last_step_bounds_the_error_of_eagle_where_the_gradient_does_not(point: tuple[float, float], kappa: float):
    problem, exact = spread(kappa, 40, 60)
    by_step = solve(EAGLE(*point), problem, tolerance=1e-8, measure="step")
    assert by_step.converged.all() and (by_step.w - exact).norm() < 1e-8 * exact.norm()
    before = iterate(EAGLE(*point), problem, int(by_step.steps))[-2]
    assert float(by_step.residual) == pytest.approx(float((by_step.w - before).norm() / by_step.w.norm()))
    assert "relative step at most" in str(by_step)
    if kappa == 1e5:
        by_gradient = solve(EAGLE(*point), problem, tolerance=1e-8)
        assert by_gradient.converged.all() and (by_gradient.w - exact).norm() > 1e-5 * exact.norm()


def test_steps_end_at_rounding_too():
    """Noisy labels on a singular matrix: rounding in the null space grows, and the steps with it."""
    found = solve(EAGLE(), squares(rank=2), tolerance=0.0, measure="step")
    assert found.at_floor.all() and found.steps.max() < 25
    exact = torch.linalg.pinv(squares(rank=2).A, rtol=1e-10) @ squares(rank=2).C
    assert torch.allclose(found.w, exact, atol=1e-8)


def test_labels_of_zeros_are_solved_before_the_first_step():
    problem = squares()
    found = solve(EAGLE(), LeastSquares(problem.A, torch.zeros_like(problem.C)))
    assert found.converged.all() and (found.steps == 0).all() and not found.w.any()


DIVERGING = EAGLE([0.5] * 30, [3.0] * 30, norms=[1.0] * 30)


def test_divergence_is_a_sentence_with_step_and_norm():
    with pytest.raises(ValueError, match=r"EAGLE: step \d+ diverges: the relative gradient .* and ‖w‖ \d"):
        solve(DIVERGING, squares())
    with pytest.raises(
        ValueError, match=r"EAGLE: step \d+ diverges: w of prompt \d is not finite, its largest entry before was \d"
    ):
        iterate(DIVERGING, squares(), 30)


def test_growth_that_ends_well_is_no_divergence():
    found = solve(EAGLE((0.0, 0.0, *(-1 / 3,) * 60), (30.0, 30.0, *(1.0,) * 60)), squares(kappa=2.0))
    assert found.converged.all()


EAGLES = [
    EAGLE(),
    EAGLE(*T3, power_iterations=12),
    SketchedEAGLE(2),
    PseudoInverseEAGLE(),
    DistributedEAGLE(3),
    AcceleratedDistributedEAGLE(3),
]


@pytest.mark.parametrize("scale", [1e160, 1e-130, 1e-170])
@pytest.mark.parametrize("solver", EAGLES, ids=lambda solver: type(solver).__name__)
def test_scale_of_the_rows_does_not_matter(solver, scale: float):
    """Where squares overflow or vanish: the same steps, and w in inverse proportion."""
    problem = squares(noise=0.0)
    expected = solve(solver, problem)
    found = solve(solver, LeastSquares(problem.A * scale, problem.C))
    assert found.converged.all() and torch.equal(found.steps, expected.steps)
    assert torch.allclose(found.w * scale, expected.w, rtol=1e-9, atol=1e-9)


def test_given_norms_are_of_the_rows_as_they_are():
    problem, norms = squares(), [1.0, 0.7, 0.5, 0.35]
    larger = LeastSquares(problem.A * 1e100, problem.C)
    for build in (EAGLE, PseudoInverseEAGLE, lambda norms: DistributedEAGLE(3, norms=norms)):
        plain = iterate(build(norms=norms), problem, 4)
        scaled = iterate(build(norms=[1e100 * norm for norm in norms]), larger, 4)
        assert torch.allclose(scaled * 1e100, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("build", [SketchedEAGLE(2), DistributedEAGLE(3, -1 / 3, 1 / 3, query=(-1.0, 1.0)), EAGLE()])
def test_rows_do_not_vanish_in_2500_steps(build):
    """Norms shrink by 2/3 a step, to 1e-440; a step still conditions what is left."""
    state = build.start(squares())
    for _ in range(2500):
        state = build.step(squares(), state)
    assert (torch.linalg.matrix_norm(state["A"], ord=2) > 0.1).all() and state["w"].isfinite().all()


@pytest.mark.parametrize("scale", [1e160, 1e-170])
@pytest.mark.parametrize("solver", [GradientDescent(), ConjugateGradient(), ClosedForm(), NewtonSchulz()])
def test_normal_equations_that_cannot_be_formed_are_refused(solver, scale: float):
    problem = squares()
    with pytest.raises(ValueError, match=r"AᵀA of prompt 0 is beyond torch.float64.*divide A and C by that"):
        solve(solver, LeastSquares(problem.A * scale, problem.C))


def test_what_the_residual_bounds_is_printed():
    """At κ = 1e6 a solution that converged is far off, and says that it may be."""
    problem, exact = spread(1e6, 40, 60)
    found = solve(EAGLE(), problem)
    assert found.converged.all() and (found.w - exact).norm() > 0.1 * exact.norm()
    assert "the relative error in w can be κ(A)² times that" in str(found)
    by_step = str(solve(EAGLE(), problem, measure="step"))
    assert "κ(A)²" not in by_step and "at most ρ/(1 − ρ) times that" in by_step


def test_refused_in_a_sentence():
    with pytest.raises(ValueError, match="solve: steps=0 must be a whole number"):
        solve(EAGLE(), squares(), max_steps=0)
    with pytest.raises(ValueError, match="measure='error' is unknown; known measures: gradient, step"):
        solve(EAGLE(), squares(), measure="error")
    with pytest.raises(ValueError, match=r"solve: tolerance=-1\.0 must be finite and at least 0"):
        solve(EAGLE(), squares(), tolerance=-1.0)
    for dtype in (torch.complex128, torch.int64):
        with pytest.raises(ValueError, match=f"both be float32 or both float64, got {dtype}"):
            LeastSquares(torch.ones(1, 3, 2, dtype=dtype), torch.ones(1, 3, 1, dtype=dtype))
