"""Filters of singular values against the solvers that they stand for."""

import pytest
import torch

from analyses.claims.claim import Measurement, Settings, verdict
from analyses.claims.criteria import CRITERIA
from analyses.claims.noise import Spectrum, errors_of, measure_at, noisy
from analyses.claims.systems import error_curve, log_uniform
from interp.solvers import ClosedForm, GradientDescent, LeastSquares, iterate

SYSTEM = noisy(log_uniform(10.0, (6, 6), 3, seed=0), 0.1, seed=0)


def test_noise_has_the_size_it_says():
    clean = log_uniform(10.0, (400, 6), 3, seed=0)
    gap = noisy(clean, 0.1, 0).problem.C - clean.problem.C
    ratio = gap.square().mean(1).sqrt() / clean.problem.C.square().mean(1).sqrt()
    assert torch.allclose(ratio, torch.full_like(ratio, 0.1), rtol=0.15)


def test_ridge_is_the_closed_form():
    spectrum, problem = Spectrum.of(SYSTEM), SYSTEM.problem
    for penalty in (1e-3, 0.1):
        ridge = iterate(ClosedForm(), LeastSquares(problem.A, problem.C, penalty), 1)[-1]
        filtered = spectrum.errors(spectrum.ridge([penalty]))[0]
        assert torch.allclose(filtered, SYSTEM.error(ridge), rtol=1e-9)


def test_descent_is_its_filter():
    spectrum = Spectrum.of(SYSTEM)
    largest = spectrum.g[:, :1]
    stepped = error_curve(GradientDescent(1.0), SYSTEM, 30)
    assert torch.allclose(largest, torch.ones_like(largest))  # so that the step is 1/g_max
    for steps in (1, 7, 30):
        filtered = spectrum.errors(spectrum.descent([steps]))[0]
        assert torch.allclose(filtered, stepped[steps], rtol=1e-9)


def test_eagle_settles_at_least_squares_and_never_beats_its_best():
    errors = errors_of(SYSTEM)
    assert torch.allclose(errors.settled, errors.solution, rtol=1e-8)
    assert (errors.best <= errors.settled).all()


def test_ratios_are_of_the_curves(tmp_path):
    found = measure_at(12, 5, Settings())
    assert found.measurements["early-stopping"].value >= 1
    assert found.measurements["over-ridge"].value == pytest.approx(1, abs=0.3)
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_an_early_stop_that_gains_nothing_fails_its_criterion():
    """Converged over best is 1 at least by construction, so 1 must not be enough."""
    assert verdict(Measurement.exact(1.0, ""), CRITERIA["noise"]["early-stopping"]) == "not reproduced"
