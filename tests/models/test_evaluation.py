"""Evaluation: errors of known models, and tails that stay finite in JSON."""

import json

import pytest
import torch

from models.evaluation import Spread, evaluate, predictions
from models.parametrisation import GramParameters, HeadSizes
from models.prompts import LogUniformSpectrum

FAMILY = LogUniformSpectrum(n=4, d=3, n_query=2, d_out=2, kappa=3)


def model(size: float, n_layers: int = 2):
    parameters = GramParameters(HeadSizes(n_layers, 1, 5), init_std=size, seed=0)
    return parameters.to_model(FAMILY.layout())


def test_the_model_that_does_nothing_has_the_error_of_zero():
    evaluation = evaluate(model(0.0), FAMILY, count=200, seed=3)
    assert evaluation.squared_error == evaluation.zero_squared_error
    assert evaluation.relative_error.rms == pytest.approx(1) == evaluation.pooled_relative_error


def test_errors_against_the_definition():
    trained, prompts = model(0.3), FAMILY.sample(50, seed=7)
    gap = trained.double().predict(prompts.tokens) - prompts.target
    evaluation = evaluate(trained, FAMILY, count=50, seed=7)
    relative = gap.flatten(1).norm(dim=1) / prompts.target.flatten(1).norm(dim=1)
    assert evaluation.squared_error.mean == pytest.approx(gap.square().mean().item())
    assert evaluation.relative_error.rms == pytest.approx(relative.square().mean().sqrt().item())
    assert evaluation.relative_error.maximum == pytest.approx(relative.max().item())
    pooled = gap.norm() / prompts.target.norm()
    assert evaluation.pooled_relative_error == pytest.approx(pooled.item())
    squared = gap.square().mean((1, 2))
    assert 0 < evaluation.blown_up == int((squared > evaluation.zero_squared_error.mean).sum()) < 50


def test_predictions_are_in_float64_and_leave_the_model_alone():
    single = model(0.3)
    assert predictions(single, FAMILY.sample(3, seed=0)).dtype == torch.float64
    assert single.dtype == torch.float32


def test_heavy_tails_are_counted_and_written_as_none():
    evaluation = evaluate(model(1e10, n_layers=6), FAMILY, count=20, seed=0)
    values = evaluation.to_dict()
    assert evaluation.blown_up == 20 and values["relative_error"]["mean"] is None
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_spread():
    spread = Spread.of(torch.arange(1000.0).flip(0))
    assert spread.median == pytest.approx(499) and spread.mean == pytest.approx(499.5)
    assert spread.q90 == 900 and spread.q99 == 990 and spread.maximum == 999
    outlier = Spread.of(torch.tensor([1.0] * 999 + [1e12]))
    assert outlier.central_mean == 1 and outlier.mean > 1e8
