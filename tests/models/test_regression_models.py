"""The models of in-context regression that ship, against the best a predictor of their kind can do."""

from dataclasses import replace

import pytest
import torch

from models import zoo
from models.prompts import GaussianRegression, Prompts, UniformRegression

SIZE, VARIANCE, FOURTH = 10, 1 / 12, 1 / 80
"""d = n, and the moments of x uniform in (-½, ½)."""
TRACE = SIZE * SIZE * VARIANCE
"""E tr G for G = Σ x xᵀ."""
TRACE_OF_SQUARE = SIZE * (SIZE * FOURTH + SIZE * (SIZE - 1) * VARIANCE**2) + SIZE * (SIZE - 1) * SIZE * VARIANCE**2
"""E tr G² = n E ‖x‖⁴ + n (n - 1) tr(E xxᵀ)²."""
BEST_STEP = TRACE / TRACE_OF_SQUARE
BEST_HALF_ERROR = VARIANCE / 2 * (SIZE - TRACE**2 / TRACE_OF_SQUARE)
"""Half the error of one step η G w from 0, VARIANCE/2 · E ‖(I - ηG) w‖², at its minimum over η."""
RIDGE = 0.3**2 * 5


def one_step(prompts: Prompts) -> torch.Tensor:
    """x_q · Xᵀ y: the prediction of one gradient step of size 1."""
    return prompts.B @ (prompts.A.mT @ prompts.C)


def interval(values: torch.Tensor) -> tuple[float, float]:
    """Mean and standard error."""
    return values.mean().item(), values.std().item() / len(values) ** 0.5


@pytest.fixture(scope="module")
def uniform() -> Prompts:
    return UniformRegression(n=SIZE, d=SIZE).sample(120_000, seed=987_654)


def test_the_best_step_by_line_search_is_that_of_the_moments(uniform):
    step = one_step(uniform)
    found = (step * uniform.target).sum() / step.square().sum()
    assert found.item() == pytest.approx(BEST_STEP, rel=0.01)
    half_error, deviation = interval((found * step - uniform.target).square().flatten() / 2)
    assert half_error == pytest.approx(BEST_HALF_ERROR, abs=3 * deviation)
    assert pytest.approx(0.2062, abs=1e-4) == BEST_HALF_ERROR


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_layer_reaches_the_error_of_the_best_step(seed, uniform):
    """Its own standard error is .001; that of the difference to the best step on the same prompts 1e-5."""
    model = zoo.seeds("lsa-1layer")[seed].double()
    with torch.no_grad():
        errors = (model.predict(uniform.tokens) - uniform.target).square().flatten() / 2
    best = (BEST_STEP * one_step(uniform) - uniform.target).square().flatten() / 2
    half_error, deviation = interval(errors)
    assert 0.2062 - deviation <= half_error <= 0.2083 + deviation
    excess, spread = interval(errors - best)
    assert -3 * spread < excess < 0.002
    assert 0.2062 <= BEST_HALF_ERROR + excess <= 0.2083


def test_one_layer_predicts_what_the_best_step_predicts(uniform):
    with torch.no_grad():
        predicted = zoo.load("lsa-1layer").double().predict(uniform.tokens)
    step = BEST_STEP * one_step(uniform)
    assert ((predicted - step).square().mean() / step.square().mean()).sqrt() < 0.05
    assert (predicted * step).sum() / predicted.norm() / step.norm() > 0.999


def ridge(prompts: Prompts, penalty: float) -> torch.Tensor:
    gram = prompts.A.mT @ prompts.A + penalty * torch.eye(prompts.A.shape[2], dtype=prompts.A.dtype)
    return prompts.B @ torch.linalg.solve(gram, prompts.A.mT @ prompts.C)


@pytest.mark.parametrize(("n", "limit"), [(20, 1.2), (10, 1.2), (5, 1.1), (2, 1.1)])
def test_the_softmax_model_is_near_ridge_at_every_length(n, limit):
    """The penalty that noise and prior ask for; the error relative to the error of that best predictor."""
    family = zoo.family("linreg-softmax")
    assert family == GaussianRegression(n=20, d=5, noise=0.3)
    prompts = replace(family, n=n).sample(8000, seed=31)
    with torch.no_grad():
        error = (zoo.load("linreg-softmax").double().predict(prompts.tokens) - prompts.target).square().mean()
    best = (ridge(prompts, RIDGE) - prompts.target).square().mean()
    assert best < error < limit * best


def test_the_softmax_model_follows_ridge_and_not_one_gradient_step():
    prompts = zoo.prompts("linreg-softmax", 4000, seed=32)
    with torch.no_grad():
        predicted = zoo.load("linreg-softmax").double().predict(prompts.tokens)
    step, best = one_step(prompts), ridge(prompts, RIDGE)
    step = step * (step * prompts.target).sum() / step.square().sum()
    to_ridge, to_step = ((predicted - other).square().mean().item() for other in (best, step))
    assert to_ridge < 0.02 < 0.1 < to_step
