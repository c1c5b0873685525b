"""Systems, curves and counts, each by two roads."""

import math

import pytest
import torch

from analyses.claims.machines import diverse_system
from analyses.claims.noise import noisy
from analyses.claims.rivals import cg_in_exact_arithmetic, descent_counts, descent_errors, log_left
from analyses.claims.systems import (
    consistent,
    error_curve,
    first_below,
    log_spaced,
    log_uniform,
    over_prompts,
    predicted_errors,
    rms,
)
from interp.convergence import steps_to, trajectory
from interp.solvers import (
    EAGLE,
    T3,
    THEORY,
    ConjugateGradient,
    GradientAveraging,
    GradientDescent,
    LeastSquares,
    iterate,
)
from models.prompts.random import gaussian


@pytest.mark.parametrize("rank", [None, 4])
def test_solution_is_that_of_least_norm(rank: int | None):
    system = log_uniform(20.0, (9, 6), 3, seed=1, rank=rank)
    A = system.problem.A
    singular = torch.linalg.svdvals(A)[:, : rank or 6]
    assert torch.allclose(torch.linalg.pinv(A, rtol=1e-10) @ system.problem.C, system.exact, atol=1e-10)
    assert torch.allclose(singular[:, 0] / singular[:, -1], torch.full((3,), 20.0).double())


def test_curve_is_the_trajectory_of_iterates_as_far_as_asked():
    system = log_uniform(10.0, (8, 6), 3, seed=0)
    whole = error_curve(EAGLE(), system, 12)
    until = error_curve(EAGLE(), system, 12, until=1e-3)
    expected = trajectory(iterate(EAGLE(), system.problem, 12), system.exact)
    assert torch.allclose(whole, expected, atol=1e-12)
    assert len(until) == int(first_below(whole, 1e-3).max()) + 1
    assert torch.equal(until, whole[: len(until)])


def test_counts_are_steps_and_never_is_a_lower_bound():
    errors = torch.tensor([[1.0, 1.0], [0.1, 0.5], [0.01, 0.6]], dtype=torch.float64)
    assert first_below(errors, 0.1).tolist() == [1, 3]
    assert steps_to(errors, 0.1).steps == (1, None)


@pytest.mark.parametrize("point", [THEORY, T3])
def test_recursion_predicts_the_solver(point: tuple[float, float]):
    sigma = log_spaced(100.0, 12)
    problem = LeastSquares(sigma.diag()[None], sigma[None, :, None])
    errors = (iterate(EAGLE(*point), problem, 14)[:, 0, :, 0] - 1).square().mean(1).sqrt()
    assert torch.allclose(predicted_errors(sigma, *point, 14), errors, rtol=1e-9, atol=1e-12)


def test_interval_over_prompts_holds_the_statistic():
    errors = log_uniform_errors()
    found = over_prompts(lambda chosen: first_below(rms(chosen), 1e-6), errors, "count")
    assert found.value == int(first_below(rms(errors), 1e-6))
    assert found.interval[0] <= found.value <= found.interval[1]


def log_uniform_errors() -> torch.Tensor:
    return error_curve(EAGLE(), log_uniform(10.0, (6, 6), 4, seed=0), 15)


def test_counts_of_descent_are_those_of_its_steps():
    system = log_uniform(5.0, (7, 5), 4, seed=0)
    stepped = first_below(error_curve(GradientDescent(), system, 1000), 1e-6)
    assert torch.equal(descent_counts(system, 1e-6), stepped.double())


@pytest.mark.parametrize("solver", [GradientDescent(), GradientAveraging(3)])
def test_descent_in_closed_form_is_the_solver(solver):
    system, steps = log_uniform(10.0, (12, 4), 3, seed=0), torch.tensor([0, 1, 7, 30])
    assert torch.allclose(descent_errors(system, steps), error_curve(solver, system, 30)[steps], atol=1e-10)


def test_what_a_step_of_descent_leaves():
    steps = torch.tensor([0.0, 1e-12, 0.3, 0.5, 1.0, 1.9], dtype=torch.float64)
    expected = torch.tensor([0.0, -1e-12, math.log(0.7), math.log(0.5), -1e3, math.log(0.9)], dtype=torch.float64)
    assert torch.allclose(log_left(steps), expected, rtol=1e-11, atol=0)


def test_descent_leaves_out_the_null_space():
    system = log_uniform(5.0, (7, 6), 4, seed=0, rank=3)
    stepped = first_below(error_curve(GradientDescent(), system, 1000), 1e-6)
    assert torch.equal(descent_counts(system, 1e-6), stepped.double())


def test_conjugate_gradients_without_rounding_are_those_with_little():
    system = log_uniform(3.0, (12, 10), 4, seed=0)
    stepped = first_below(error_curve(ConjugateGradient(), system, 20), 1e-3)
    assert torch.equal(cg_in_exact_arithmetic(system, 1e-3), stepped.double())
    hard = log_uniform(1e4, (12, 10), 2, seed=0)
    assert (cg_in_exact_arithmetic(hard, 1e-6) <= 10).all()
    assert (first_below(error_curve(ConjugateGradient(), hard, 100), 1e-6) > 10).all()


def test_rank_one_needs_one_step():
    A = torch.ones(1, 4, 3, dtype=torch.float64)
    assert cg_in_exact_arithmetic(consistent(A, 0, rank=1), 1e-9).tolist() == [1]


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: log_uniform(10.0, (200, 200), 1, seed),
        lambda seed: consistent(gaussian((1, 200, 200), torch.Generator().manual_seed(seed)), seed),
        lambda seed: diverse_system(0.5, 2, 200, 10.0, 1, seed),
    ],
)
def test_the_solution_is_not_drawn_with_the_numbers_of_the_matrix(draw):
    """Not the normal numbers that the seed begins with, by which matrices and frames are drawn."""
    first = torch.randn(200, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    w = draw(3).exact[0, :, 0]
    assert abs(float(torch.corrcoef(torch.stack([w, first]))[0, 1])) < 0.3


def test_noise_is_not_the_solution_of_the_next_seed():
    clean, other = (log_uniform(10.0, (200, 200), 1, seed) for seed in (3, 4))
    drawn = noisy(clean, 0.1, 3).problem.C - clean.problem.C
    pair = torch.stack([drawn.flatten(), other.exact.flatten()])
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.3
