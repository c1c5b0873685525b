"""EAGLE with estimated norms, with a sketch, and its conserved quantity."""

import itertools
import math

import numpy as np
import pytest
import torch

from interp.convergence import steps_to, trajectory
from interp.solvers import EAGLE, T3, THEORY, LeastSquares, PseudoInverseEAGLE, SketchedEAGLE, iterate, solve, states
from interp.solvers.seeds import mixed
from interp.solvers.sketched_eagle import frame
from interp.solvers.spectral_norm import power_squared_norm, squared_norm
from tests.interp.solvers import row_references
from tests.interp.solvers.cases import squares


def spread(kappa: float, d: int, n: int, out: int = 1, seed: int = 0) -> tuple[LeastSquares, torch.Tensor]:
    """Log-uniform singular values between Haar frames, and the solution."""
    U, V = frame(n, d, seed), frame(d, d, seed + 1)
    sigma = torch.logspace(0, -math.log10(kappa), d, dtype=torch.float64)
    w = torch.randn(1, d, out, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    A = (U * sigma @ V.mT)[None]
    return LeastSquares(A, A @ w), w


def relative(w: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return (w - exact).flatten(1).norm(dim=1) / exact.norm()


@pytest.mark.parametrize(("kappa", "count"), [(1e2, 16), (1e3, 21), (1e4, 27), (1e5, 33)])
def test_steps_to_1e_8(kappa: float, count: int):
    """The recursion in scalars at 1,000 log-uniform singular values; a dense system of 120 × 60; and lstsq."""
    sigma = np.logspace(0, -math.log10(kappa), 1000)
    factors = itertools.accumulate(row_references.eagle_factors(*THEORY)(sigma**2), np.multiply)
    errors = [float(np.sqrt(np.mean(r**2))) for r in itertools.islice(factors, 40)]
    assert next(step for step, error in enumerate(errors, start=1) if error < 1e-8) == count
    problem, exact = spread(kappa, 60, 120)
    found = solve(EAGLE(), problem, tolerance=0.0, max_steps=count + 1)
    assert (steps_to(trajectory(iterate(EAGLE(), problem, count + 1), exact), 1e-8).steps[0] or 99) <= count + 1
    assert relative(found.w, torch.linalg.lstsq(problem.A, problem.C).solution) < 1e-6


@pytest.mark.parametrize(("n", "d"), [(7, 5), (5, 7)])
def test_power_iterations_err_from_below(n: int, d: int):
    A = torch.randn(6, n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = torch.linalg.matrix_norm(A, 2)[:, None, None] ** 2
    few, many = power_squared_norm(A, 3, 0), power_squared_norm(A, 300, 0)
    assert torch.allclose(squared_norm(A), exact, rtol=1e-12)
    assert (few < exact).all() and (few > 0.5 * exact).all()
    assert torch.allclose(many, exact, rtol=1e-6)
    assert torch.equal(power_squared_norm(A, 3, 0), few) and not torch.equal(power_squared_norm(A, 3, 1), few)
    assert torch.equal(power_squared_norm(torch.zeros(2, 3, 4), 3, 0), torch.ones(2, 1, 1))


def test_theory_keeps_its_step_count_with_four_power_iterations():
    problem, exact = spread(1e4, 40, 60)
    by_norm = [relative(iterate(EAGLE(power_iterations=k), problem, 30)[:, 0], exact) for k in (None, 4)]
    counts = [int((error < 1e-8).nonzero()[0]) for error in by_norm]
    assert abs(counts[0] - counts[1]) <= 1


def test_t3_needs_more_steps_with_few_power_iterations():
    problem, exact = spread(1e2, 40, 60)
    errors = [relative(iterate(EAGLE(*T3, power_iterations=k), problem, 40)[:, 0], exact) for k in (None, 4)]
    counts = [int((error < 1e-8).nonzero()[0]) for error in errors]
    assert counts[0] + 5 < counts[1]


@pytest.mark.parametrize("solver", [EAGLE(), EAGLE(*T3), SketchedEAGLE(2), SketchedEAGLE(1, *T3, seed=3)])
@pytest.mark.parametrize("rank", [3, None])
def test_completion_error_of_the_queries_is_conserved(solver, rank: int | None):
    """D − B A⁺C after every layer is what it was, for queries X A in the row space (MATH §4), sketch or not."""
    problem = squares(noise=0.0, rank=rank)
    X = torch.randn(3, 2, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for state in states(solver, problem, 8):
        w = torch.linalg.pinv(state["A"], rtol=1e-10) @ state["C"]
        gap = X @ problem.A @ (state["D"] - state["B"] @ w)
        assert torch.allclose(gap, -X @ problem.C, atol=1e-10)


def test_sketched_eagle_solves_singular_systems_but_not_at_least_norm():
    problem = squares(noise=0.0, rank=2)
    w = iterate(SketchedEAGLE(2), problem, 60)[-1]
    assert torch.allclose(problem.A @ w, problem.C, atol=1e-8)
    least = torch.linalg.pinv(problem.A, rtol=1e-10) @ problem.C
    assert (w.flatten(1).norm(dim=1) > least.flatten(1).norm(dim=1) + 1e-2).all()


@pytest.mark.parametrize("point", [THEORY, T3])
def test_estimated_parameters_times_labels_are_the_iterates(point: tuple[float, float]):
    """W_l C = w_l at every step, and W_l → A⁺; of singular matrices too, as long as rounding has not grown."""
    for problem, steps in ((squares(kappa=50.0), 16), (squares(rank=2), 5)):
        seen = states(PseudoInverseEAGLE(*point), problem, steps)
        for estimate, w in zip(seen, iterate(EAGLE(*point), problem, steps), strict=True):
            assert torch.allclose(estimate["W"] @ problem.C, w, rtol=1e-10, atol=1e-10)
            assert torch.equal(estimate["w"], estimate["W"] @ problem.C)
    solved = states(PseudoInverseEAGLE(), squares(kappa=50.0), 20)[-1]["W"]
    assert torch.allclose(solved, torch.linalg.pinv(squares(kappa=50.0).A), rtol=1e-10, atol=1e-10)


def test_full_sketch_is_eagle():
    problem = squares()
    assert torch.allclose(iterate(SketchedEAGLE(4), problem, 12), iterate(EAGLE(), problem, 12), atol=1e-11)


def test_sketched_eagle_converges_in_more_steps():
    problem, exact = spread(10.0, 8, 12)
    errors = {r: relative(iterate(SketchedEAGLE(r), problem, 120)[:, 0], exact) for r in (2, 4, 8)}
    counts = [int((error < 1e-8).nonzero()[0]) for error in errors.values()]
    assert counts[0] > counts[1] > counts[2]
    assert torch.allclose(iterate(SketchedEAGLE(4, seed=1), problem, 100)[-1], exact, atol=1e-8)


def test_frames_are_orthonormal_and_fresh():
    S = frame(6, 3, 0)
    assert torch.allclose(S.mT @ S, torch.eye(3).double(), atol=1e-14)
    assert torch.equal(S, frame(6, 3, 0)) and not torch.allclose(S, frame(6, 3, 1))


def test_neighbouring_seeds_share_no_frame_and_no_vector():
    """Step 1 of seed 0 is not step 0 of seed 1: after one more step of the same rows, w would be the same."""
    problem = squares()
    for build in (lambda seed: SketchedEAGLE(2, seed=seed), lambda seed: EAGLE(power_iterations=1, seed=seed)):
        late = {**states(build(0), problem, 1)[0], "step": 1}
        early = states(build(1), problem, 1)[0]
        assert not torch.allclose(build(0).step(problem, late)["w"], build(1).step(problem, early)["w"], atol=1e-6)
    assert len({mixed(seed, step) for seed in range(50) for step in range(50)}) == 2500
    assert mixed(-1, 0) == mixed(2**64 - 1, 0)
