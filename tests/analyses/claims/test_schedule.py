"""Schedules of trained models, named constants and their table."""

import dataclasses

import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.named_constants import best_pair, describe, fractional_counts
from analyses.claims.schedule import Sizes, in_a_batch, measure_at, t3_rate
from analyses.claims.systems import log_spaced, predicted_errors
from analyses.claims.trained_schedules import place, spectrum_of
from interp import closed_form, unroll
from interp.solvers import T3, THEORY
from interp.solvers.spectra import Spectrum
from models import zoo
from models.prompts import CovarianceFactors, HaarNystrom, LogUniformSpectrum

SMALL = Sizes(starts=4, grid=(5, 3), d=16, prompts=2)


def test_every_criterion_is_measured(tmp_path):
    found = measure_at(SMALL, ("eagle-d10", "no such model"), Settings())
    assert set(found.measurements) == set(CRITERIA["schedule"])
    assert list(found.details["models"]) == ["eagle-d10"] and "eagle-d10" in found.table
    model = found.details["models"]["eagle-d10"]
    assert found.measurements["bounded"].value == pytest.approx(model["error"] / model["best"])
    assert model["bound"] < model["best"] <= model["error"] and model["sup bound"] < model["sup"]
    assert found.draw is not None
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_trained_error_is_that_of_the_rule_on_prompts():
    """The integral over the spectrum against the two-word rule run on prompts, for isotropic w."""
    placed = place("eagle-d10", 1, 0)
    form = closed_form(unroll(zoo.load("eagle-d10").double()))
    assert placed is not None and form is not None
    family = dataclasses.replace(zoo.family("eagle-d10"), n_query=1)
    prompts = family.sample(4000, seed=3)
    w = torch.linalg.solve(prompts.A, prompts.C)
    errors = (form.implicit_weights(prompts.A, prompts.C) - w).square().sum((1, 2)).mean() / w.square().sum(
        (1, 2)
    ).mean()
    assert placed.error == pytest.approx(float(errors.sqrt()), rel=0.03)


def test_spectra_of_families():
    spectrum, norm = spectrum_of(LogUniformSpectrum(n=6, d=6, kappa=5, scale=1.5), 0)
    assert norm == 1.5 and spectrum.kappa == 5
    assert torch.equal(spectrum.g, Spectrum.log_uniform(5, 6).g)
    sampled, norm = spectrum_of(CovarianceFactors(), 0)
    assert float(sampled.g.max()) == 1 and float(sampled.weight.sum()) == pytest.approx(1)
    assert norm < float(torch.linalg.matrix_norm(CovarianceFactors().sample(512, seed=0).A, 2).max())
    with pytest.raises(ValueError, match="known: LogUniformSpectrum, CovarianceFactors"):
        spectrum_of(HaarNystrom(n=4, n_query=2, kappa=3), 0)


def test_error_on_a_sampled_spectrum_is_nearly_that_on_its_prompts():
    """Products between directions, which the spectrum leaves out, are small."""
    placed = place("eagle", 1, 0)
    form = closed_form(unroll(zoo.load("eagle").double()))
    assert placed is not None and form is not None and placed.worst is None
    prompts = zoo.prompts("eagle", 512, seed=0)
    norm = torch.linalg.matrix_norm(prompts.A, 2)
    kept = norm <= norm.quantile(0.99)
    gap = prompts.B @ form.implicit_weights(prompts.A, prompts.C) - prompts.target
    assert placed.error == pytest.approx(float(gap[kept].norm() / prompts.target[kept].norm()), rel=0.15)


def test_named_constants_by_the_numbers_of_their_theory():
    theory, t3, published = describe(*THEORY), describe(*T3), describe(-1.0, 1.9)
    assert list(theory.counts.values()) == [10, 16, 21, 27, 33]
    assert list(t3.counts.values()) == [18, 20, 22, 24, 26]
    assert theory.order is not None and theory.order.value == pytest.approx(2, abs=0.1)
    assert t3.rate is not None and t3.rate.value == pytest.approx(1 / 3, abs=0.01)
    assert set(published.counts.values()) == {None} and published.order is None
    assert min(published.floors.values()) > 1e-2


def test_search_of_constants_is_that_of_single_runs():
    etas, gammas = torch.tensor([0.3, 0.5, 0.9]).double(), torch.tensor([0.9, 1.0]).double()
    totals = {}
    for eta in etas.tolist():
        for gamma in gammas.tolist():
            curves = [predicted_errors(log_spaced(10.0**k, 400), -eta, gamma, 30) for k in range(1, 6)]
            totals[-eta, gamma] = sum(float(fractional_counts(curve[:, None], 1e-8)[0]) for curve in curves)
    assert best_pair(etas, gammas) == min(totals, key=lambda pair: totals[pair])


def test_fractional_counts():
    errors = torch.tensor([[1.0, 1.0], [1e-2, 0.5], [1e-4, 0.4]], dtype=torch.float64)
    assert fractional_counts(errors, 1e-3).tolist() == pytest.approx([1.5, 3])


def test_t3_gains_a_third_a_layer():
    found = t3_rate(layers=5, points=301)
    assert found.value == pytest.approx(1 / 3, abs=1e-12)


def test_largest_prompt_of_a_batch_keeps_its_error():
    middle, worst = in_a_batch(64, 30, 0)
    assert middle < 1e-2 < worst
    rank = CovarianceFactors().rank
    assert worst >= (1.9 - 1) / rank**0.5 * 0.1
