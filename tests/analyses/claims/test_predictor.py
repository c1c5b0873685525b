"""The claim predictor at small sizes: predictors by spectra against direct solutions, and models that are known."""

import pytest
import torch

from analyses.claims import predictor, regression_case
from analyses.claims.claim import Settings
from analyses.claims.criteria.decoding import DECODING
from interp.solvers import GradientDescent, LeastSquares, iterate
from models.constructions import PromptShape, gradient_descent, scheduled_gradient_descent
from models.prompts import GaussianRegression

TASK = GaussianRegression(n=9, d=4, noise=0.3)
SAMPLE = TASK.sample(200, seed=3)


def case(answers: torch.Tensor, penalty: float = 0.36) -> regression_case.Case:
    return regression_case.Case.of(SAMPLE, answers, penalty)


def test_predictors_by_spectra_are_the_direct_solutions():
    found, A, C = case(SAMPLE.target), SAMPLE.A, SAMPLE.C
    ridge = torch.linalg.solve(A.mT @ A + 0.36 * torch.eye(4).double(), A.mT @ C)
    torch.testing.assert_close(found.ridge(0.36), (SAMPLE.B @ ridge)[:, 0, 0], rtol=1e-10, atol=1e-12)
    exact = torch.linalg.lstsq(A, C).solution
    torch.testing.assert_close(found.ridge(0.0), (SAMPLE.B @ exact)[:, 0, 0], rtol=1e-8, atol=1e-10)
    w = iterate(GradientDescent(0.02), LeastSquares(A, C), 3)[-1]
    torch.testing.assert_close(found.gradient_descent(3, 0.02), (SAMPLE.B @ w)[:, 0, 0], rtol=1e-10, atol=1e-12)
    distance = (SAMPLE.target[:, 0, 0] - found.ridge(0.36)).norm() / found.ridge(0.36).norm()
    assert found.distance(found.ridge(0.36)) == pytest.approx(distance.item(), rel=1e-12)


def test_bayes_is_the_best_ridge_on_new_queries():
    sample = TASK.sample(20_000, seed=4)
    found = regression_case.Case.of(sample, sample.target, TASK.noise**2 * TASK.d)
    assert found.nearest_penalty() == pytest.approx(0.36, rel=0.15)


@pytest.mark.parametrize("penalty", [0.02, 0.36, 5.0])
def test_the_penalty_of_a_ridge_regression_is_found(penalty):
    answers = case(SAMPLE.target).ridge(penalty)[:, None, None]
    assert case(answers).nearest_penalty() == pytest.approx(penalty, rel=1e-3)


def test_gradient_descent_is_recognised_and_not_taken_for_bayes():
    model = gradient_descent(PromptShape(d=4), 0.03, 2).model
    found = case(model.predict(SAMPLE.tokens).detach())
    steps, gamma = found.nearest_descent(4)
    assert steps == 2 and gamma == pytest.approx(0.03, rel=1e-3)
    assert found.distance(found.gradient_descent(steps, gamma)) < 1e-3 < found.distance(found.ridge(0.36))


def test_a_model_that_solves_ridge_at_each_noise_adapts_and_one_with_a_fixed_penalty_does_not():
    for follows, expected in ((True, 1.0), (False, 0.0)):
        cases = {}
        for sigma in (0.1, 0.3, 0.9):
            own = case(SAMPLE.target, sigma**2 * 4)
            cases[sigma] = case(own.ridge(own.penalty if follows else 0.36)[:, None, None], own.penalty)
        noises = {sigma: {"penalty": 0.0, "bayes_penalty": 0.0} for sigma in cases}
        found = predictor._adapts(cases, noises, 0.36, "", 0)
        assert found.value == pytest.approx(expected, abs=5e-3)


def test_a_model_of_many_steps_has_the_distances_of_its_measure():
    """`ask` runs the model on the prompts of the task; two steps of different size are near no single one."""
    model = scheduled_gradient_descent(PromptShape(d=4), [0.02, 0.05]).model
    found = predictor.ask(model, TASK, 64, Settings(seed=5))
    sample = TASK.sample(64, seed=5)
    torch.testing.assert_close(found.answers, model.predict(sample.tokens)[:, 0, 0].detach())
    assert found.penalty == pytest.approx(0.36)


def test_every_criterion_is_measured_and_counts_are_of_the_table():
    findings = predictor.measure(Settings(), prompts=64)
    assert set(findings.measurements) == set(DECODING["predictor"])
    points = findings.details["points"].values()
    nearest = [by["bayes"] < min(by["least_squares"], by["descent"]) for by in points]
    assert findings.measurements["nearest"].value == sum(nearest)
    last = findings.details["points"][max(predictor.POINTS)]
    assert findings.measurements["distance"].value == pytest.approx(last["bayes"], rel=1e-10)
    at = findings.details["points"][predictor.AT]
    assert findings.measurements["over-gd"].value == pytest.approx(at["descent"] / at["bayes"], rel=1e-10)


def test_the_note_says_how_far_the_kept_penalty_is_from_that_of_training():
    text = predictor._kept({0.1: {"penalty": 0.6}, 0.3: {"penalty": 0.45}, 0.9: {"penalty": 0.3}}, 0.4)
    assert "0.30 to 0.60" in text and "-25% to +50% from λ = 0.4" in text
