"""The claims one-step and more-layers at small sizes: their numbers by a second way."""

import pytest
import torch

from analyses.claims import gd_family, more_layers, one_step
from analyses.claims.claim import Measurement, Settings
from analyses.claims.criteria.decoding import DECODING
from interp.solvers import GDPlusPlus, GradientDescent, LeastSquares, iterate
from models import zoo
from models.constructions import PromptShape, gd_plus_plus, gradient_descent
from models.prompts import LogUniformSpectrum, UniformRegression

SAMPLE = LogUniformSpectrum(n=8, d=6, n_query=2, d_out=2, kappa=5).sample(16, seed=1)


def test_one_step_measures_every_criterion_at_its_worst_seed():
    findings = one_step.measure(Settings(), prompts=64)
    assert set(findings.measurements) == set(DECODING["one-step"])
    seeds = findings.details["seeds"].values()
    assert findings.measurements["sensitivity"].value == max(by["sensitivity"] for by in seeds)
    assert findings.measurements["cosine"].value == min(by["cosine"] for by in seeds)
    losses = findings.details["mixtures"]["squared_error"]
    for seed, by in findings.details["seeds"].items():
        assert by["loss"] == pytest.approx(losses[seed][0] / losses[seed][-1], rel=1e-10)
        assert by["interpolation"] == pytest.approx(losses[seed][4] / losses[seed][0], rel=1e-10)


def test_the_head_that_acts_answers_as_the_model_and_its_derivative_is_w():
    model, sample = zoo.load(one_step.MODEL).double(), zoo.prompts(one_step.MODEL, 5, seed=3)
    head = one_step.Head.of(model)
    w = head.weights(sample)
    torch.testing.assert_close(sample.B @ w, model.predict(sample.tokens).detach(), rtol=1e-10, atol=1e-12)
    rows = sample.tokens[:, :-1]
    by_tensor = torch.einsum("ibcj,pbc->pij", head.tensor(), rows.mT @ rows)
    torch.testing.assert_close(by_tensor, w, rtol=1e-10, atol=1e-12)


def test_a_construction_is_its_own_gradient_step():
    """Scaled apart, Q by 3 and V by 1/3, it is still the same step, and every mixture of both is."""
    family = UniformRegression(n=6, d=4)
    sample = family.sample(32, seed=2)
    model = gradient_descent(PromptShape(d=4), 0.7, 1).model
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(3)
        model.blocks[0].attn.W_V.div_(3)
    found = one_step.Trained(0, one_step.Head.of(model), 0.7, sample).measure(0)
    for name, value in {"loss": 1, "cosine": 1, "weights": 1, "interpolation": 1}.items():
        assert found[name].value == pytest.approx(value, abs=1e-10)
    assert max(found["predictions"].value, found["sensitivity"].value) < 1e-10


def test_a_layer_that_steps_along_another_direction_is_told_apart():
    sample = UniformRegression(n=6, d=4).sample(32, seed=2)
    head = one_step.Head.gradient_step(0.7, one_step.Head(torch.eye(4, 5).double(), torch.ones(5, 1).double()))
    turned = one_step.Head(head.Q.roll(1, 0), head.V)
    turned = turned.mixed(head, 0.3)
    found = one_step.Trained(0, turned, 0.7, sample).measure(0)
    assert found["cosine"].value < 0.8 and found["weights"].value < 0.8 and found["sensitivity"].value > 0.3


def test_the_line_search_finds_the_best_step():
    sample = zoo.prompts(one_step.MODEL, 200, seed=5)
    gamma = one_step.step_size(sample)

    def error(step: float) -> float:
        return (sample.B @ (step * sample.A.mT @ sample.C) - sample.target).square().sum().item()

    assert error(gamma) < min(error(0.99 * gamma), error(1.01 * gamma))


@pytest.mark.parametrize(("name", "values", "expected"), [("loss", (0.9, 1.05), 0.9), ("cosine", (0.9, 1.0), 0.9)])
def test_the_worst_seed_is_furthest_from_a_gradient_step(name, values, expected):
    found = [{name: Measurement.exact(value, "")} for value in values]
    assert one_step.worst(name, found).value == expected
    assert one_step.worst("sensitivity", [{"sensitivity": Measurement.exact(v, "")} for v in (0.1, 0.3)]).value == 0.3


def test_methods_on_spectra_are_the_solvers_step_by_step():
    spectral, problem = gd_family.Spectral.of(SAMPLE), LeastSquares(SAMPLE.A, SAMPLE.C)
    for pair, solver in (((-0.4, 0.9), GDPlusPlus(-0.4, 0.9)), ((0.0, 1.2), GradientDescent(1.2))):
        expected = iterate(solver, problem, 3)[-1]
        torch.testing.assert_close(spectral.weights([pair] * 3), expected, rtol=1e-10, atol=1e-12)
    gap = SAMPLE.B @ expected - SAMPLE.target
    error = (gap.square().sum() / SAMPLE.target.square().sum()).sqrt().log()
    torch.testing.assert_close(spectral.log_error([(0.0, 1.2)] * 3), error)


def test_constants_are_optima_and_more_freedom_is_never_worse():
    spectral = gd_family.Spectral.of(SAMPLE)
    found = [tune(spectral, 2) for tune in more_layers.SOLVERS.values()]
    errors = [spectral.log_error(steps).item() for steps in found]
    assert errors[0] > errors[1] > errors[2]
    for steps, error in zip(found[:2], errors[:2], strict=True):
        for i in range(1 if steps[0][0] == 0 else 0, 2):
            for factor in (0.98, 1.02):
                moved = [tuple(v * factor if j == i else v for j, v in enumerate(pair)) for pair in steps]
                assert spectral.log_error(moved).item() > error


def test_a_construction_of_gd_plus_plus_is_nearest_to_it():
    model = gd_plus_plus(PromptShape(d=6, d_out=2, n_query=2), -0.4, 0.9, 3).model
    w = more_layers.implicit_weights(model, SAMPLE)
    torch.testing.assert_close(SAMPLE.B @ w, model.predict(SAMPLE.tokens).detach(), rtol=1e-10, atol=1e-12)
    expected = gd_family.Spectral.of(SAMPLE).weights([(-0.4, 0.9)] * 3)
    torch.testing.assert_close(w, expected, rtol=1e-10, atol=1e-12)


def test_more_layers_measures_every_criterion():
    findings = more_layers.measure(Settings(), prompts=32, fit=32)
    assert set(findings.measurements) == set(DECODING["more-layers"])
    models = findings.details["models"]
    named = "eagle-depth2, eagle-depth3, eagle-d10 on n = 10, d = 10, 5 answers, condition number of A 10"
    assert findings.table.startswith(named + "\n")
    assert all(named in measurement.note for measurement in findings.measurements.values())
    assert findings.measurements["loss"].value == pytest.approx(
        max(by["GD++"]["error_over_model"] for by in models.values()), rel=1e-10
    )
    for by in models.values():
        assert by["GD++, constants a layer"]["distance_over_error"] < by["GD++"]["distance_over_error"]
