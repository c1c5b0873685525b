"""The best schedules, the bounds that hold for every polynomial, and where given schedules stand between them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

from interp.solvers import EAGLE, T3, LeastSquares, Spectrum, iterate, optimal_schedule, polynomial_bound
from interp.solvers.schedule_search import _recursion, in_own_units, norms, residual
from interp.unrolling.spectral import ClosedForm

TRAINING = Spectrum.log_uniform(10.0, d=10)


@pytest.mark.parametrize(("depth", "largest", "mean"), [(3, 0.146, 0.096), (4, 6.5e-4, 3.8e-4)])
def test_bounds_of_math(depth: int, largest: float, mean: float):
    """MATH §4 at κ = 10; "rms" on the training spectrum of d = 10 with both ends pinned."""
    assert polynomial_bound(10.0, depth) == pytest.approx(largest, rel=5e-3)
    assert polynomial_bound(10.0, depth, "rms", TRAINING) == pytest.approx(mean, rel=5e-3)


def test_bounds_by_other_roads():
    """Degree 4 at κ = 4: the maximum by a linear programme on a grid, the mean by the normal equations in g itself."""
    grid = np.linspace(1 / 16, 1, 4001)
    powers = grid[:, None] ** np.arange(1, 5)
    ones = np.ones((len(grid), 1))
    rows = np.block([[powers, -ones], [-powers, -ones]])
    solved = linprog([0] * 4 + [1], rows, np.concatenate([-ones, ones])[:, 0], bounds=[(None, None)] * 4 + [(0, None)])
    assert polynomial_bound(4.0, 2) == pytest.approx(solved.fun, rel=1e-5)
    chosen = Spectrum.log_uniform(4.0)
    root = chosen.weight.sqrt().numpy()
    basis = chosen.g.numpy()[:, None] ** np.arange(1, 5) * root[:, None]
    left = root - basis @ np.linalg.lstsq(basis, root, rcond=None)[0]
    assert polynomial_bound(4.0, 2, "rms", chosen) == pytest.approx(np.linalg.norm(left), rel=1e-8)
    assert polynomial_bound(4.0, 2, "rms", torch.tensor([[1.0, 0.5], [1.0, 0.25]])) == 0.0


def test_spectra():
    """Means over the two named spectra, by hand, and over a sample."""
    low = 1 / 9
    interval, logs, sample = (Spectrum.of(s, 3.0) for s in ("interval", "log-uniform", torch.tensor([1.0, 0.5])))
    assert float(interval.weight @ interval.g) == pytest.approx((1 + low) / 2)
    assert float(logs.weight @ logs.g) == pytest.approx((1 - low) / math.log(9))
    assert float(sample.weight @ sample.g) == pytest.approx((1 + 0.25) / 2)
    pinned = Spectrum.log_uniform(3.0, d=4)
    assert float(pinned.weight @ pinned.g) == pytest.approx(0.5 * (1 - low) / math.log(9) + 0.25 * (1 + low))
    assert float(pinned.weight.sum()) == pytest.approx(1.0)


def test_recursion_is_the_closed_form_and_its_slope_the_difference_quotient():
    eta, gamma = (-1.1, -4.0, 0.0), (1.2, 7.0, 30.0)
    g, numbers = torch.linspace(0.01, 1, 9).double(), torch.tensor([[*eta[:2], *gamma]]).double()
    p = [ClosedForm(eta, gamma).evaluate(g, layer)[0] for layer in range(3)]
    assert torch.allclose(residual(numbers, g)[0], ClosedForm(eta, gamma).evaluate(g)[1], atol=1e-14)
    assert torch.allclose(norms(numbers, g)[0], torch.stack([(g.sqrt() * q).abs().max() for q in p]))
    _, slope = _recursion(numbers, g, True)
    for number in range(5):
        shift = torch.zeros_like(numbers)
        shift[0, number] = 1e-6
        quotient = (residual(numbers + shift, g) - residual(numbers - shift, g)) / 2e-6
        assert torch.allclose(slope[:, number], quotient, atol=1e-8)


def test_unit_free_steps_are_those_of_eagle():
    sigma = torch.logspace(-1, 0, 50, dtype=torch.float64)
    own = in_own_units(torch.tensor([[T3[0]] * 3 + [T3[1]] * 4], dtype=torch.float64), sigma**2)
    w = iterate(EAGLE(*T3), LeastSquares(torch.diag(sigma)[None], sigma[None, :, None]), 4)[-1, 0, :, 0]
    assert torch.allclose(residual(own, sigma**2)[0], 1 - w, atol=1e-11)


@pytest.mark.parametrize(("criterion", "best"), [("max", 0.17170), ("rms", 0.099281)])
def test_best_at_depth_three(criterion: str, best: float):
    found = optimal_schedule(10.0, 3, spectrum=TRAINING, criterion=criterion, starts=24)
    assert found.error == pytest.approx(best, rel=1e-3) and found.error > found.bound
    assert all(found.optima[i].error < found.optima[i + 1].error for i in range(len(found.optima) - 1))
    assert sum(optimum.starts for optimum in found.optima) == found.starts == 28
    _, r, _ = ClosedForm(found.eta, found.gamma).evaluate(np.linspace(0.01, 1, 20001))
    if criterion == "max":
        assert np.abs(r).max() == pytest.approx(found.error, rel=1e-4)
    else:
        r = ClosedForm(found.eta, found.gamma).evaluate(TRAINING.g)[1]
        assert float((r.square() * TRAINING.weight).sum().sqrt()) == pytest.approx(found.error, rel=1e-12)


@pytest.mark.parametrize("criterion", ["max", "rms"])
def test_one_layer_reaches_the_bound(criterion: str):
    found = optimal_schedule(7.0, 1, criterion=criterion, spectrum="log-uniform", starts=4)
    assert found.error == pytest.approx(found.bound, rel=1e-6)
    assert len(found.optima) == 1 and found.eta == (0.0,)
    if criterion == "max":
        assert found.gamma[0] == pytest.approx(2 / (1 + 1 / 49), rel=1e-6)  # the best step of gradient descent


@pytest.mark.parametrize("criterion", ["max", "rms"])
def test_a_library_finds_nothing_better_nearby(criterion: str):
    """Nelder and Mead's simplex from the best one, on the closed form."""
    found = optimal_schedule(10.0, 2, spectrum="log-uniform", criterion=criterion, starts=24)
    spectrum, sigma = Spectrum.log_uniform(10.0), np.linspace(0.1, 1, 2001)

    def error(steps: np.ndarray) -> float:
        form = ClosedForm((steps[0], 0.0), (steps[1], steps[2]))
        if criterion == "max":
            return float(np.abs(form.evaluate(sigma**2)[1]).max())
        return float((form.evaluate(spectrum.g)[1].square() * spectrum.weight).sum().sqrt())

    start = np.array([found.eta[0], *found.gamma])
    near = minimize(error, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 2000})
    assert error(start) == pytest.approx(found.error, rel=1e-5)
    assert near.fun >= found.error * (1 - 1e-5)


def test_given_schedules_are_placed():
    best = optimal_schedule(10.0, 3, spectrum="log-uniform", criterion="rms", starts=24)
    near = [value * 1.003 for value in best.eta], [value * 0.998 for value in best.gamma]
    other = best.optima[-1].eta[:2], best.optima[-1].gamma
    found = optimal_schedule(10.0, 3, spectrum="log-uniform", criterion="rms", starts=24, initial=[near, other])
    assert found.placed[0].optimum == 0 and found.placed[0].error > best.error
    assert found.placed[1].error == pytest.approx(best.optima[-1].error, rel=1e-6)
    assert found.optima[found.placed[1].optimum].error == pytest.approx(best.optima[-1].error, rel=1e-3)
    assert "given 0: error" in str(found) and "in the basin of optimum 0" in str(found)
    assert found.to_dict()["placed"][0]["optimum"] == 0


def test_seeded_and_a_sample_of_spectra():
    sigma = torch.tensor([[1.0, 0.7, 0.2], [1.0, 0.35, 0.2]]).double()
    for criterion in ("max", "rms"):
        first, again = (optimal_schedule(5.0, 2, spectrum=sigma, criterion=criterion, starts=8, seed=s) for s in (3, 3))
        assert first == again
        r = ClosedForm(first.eta, first.gamma).evaluate(sigma**2)[1]
        expected = r.abs().max() if criterion == "max" else r.square().mean().sqrt()
        assert float(expected) == pytest.approx(first.error, rel=1e-9)


def test_bound_of_a_sample_is_that_of_its_values():
    """Below the bound of the whole interval; the programme's dual: the worst 5 of 30 values, by Lagrange's formula."""
    sigma = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.1
    found = optimal_schedule(10.0, 2, spectrum=sigma, starts=16)
    assert found.bound <= found.error < polynomial_bound(10.0, 2)
    g = sigma.double().flatten().square().sort().values[::3]
    subsets = torch.combinations(g, 5)
    factors = [
        torch.stack([subsets[:, j] / (subsets[:, j] - subsets[:, i]) for j in range(5) if j != i]).prod(0).abs()
        for i in range(5)
    ]
    assert polynomial_bound(10.0, 2, "max", g.sqrt()) == pytest.approx(float((1 / sum(factors)).max()), rel=1e-6)
    assert polynomial_bound(10.0, 2, "max", g[:4].sqrt()) == 0.0
    dense = torch.logspace(-1, 0, 4000, dtype=torch.float64)
    assert polynomial_bound(10.0, 3, "max", dense) == pytest.approx(polynomial_bound(10.0, 3), rel=1e-4)


def test_bounds_count_distinct_values():
    repeated = torch.tensor([1.0, 0.5]).repeat(40)
    assert polynomial_bound(4.0, 2, "rms", repeated) == polynomial_bound(4.0, 2, "max", repeated) == 0.0


def test_schedules_at_large_kappa_and_for_one_value():
    found = optimal_schedule(1e4, 2, starts=4)
    assert found.bound < found.error < 1
    one = optimal_schedule(10.0, 2, spectrum=torch.ones(4, 1), starts=4)
    assert one.bound == 0.0 and one.error < 1e-9


REFUSED = {
    "kappa": (lambda: optimal_schedule(1.0, 3), r"kappa=1.0 must be finite and above 1"),
    "depth": (lambda: optimal_schedule(10.0, 0), r"depth=0 must be a whole number of at least 1"),
    "criterion": (lambda: polynomial_bound(10.0, 3, "mean"), r"criterion 'mean' is unknown; known criteria: max, rms"),
    "spectrum": (lambda: polynomial_bound(10.0, 3, "rms", "flat"), r"'flat' is unknown; known: interval, log-uniform"),
    "sample": (lambda: polynomial_bound(10.0, 3, "rms", torch.tensor([0.01])), r"lie in \[1/κ, 1\] = \[0.1, 1\]"),
    "list": (lambda: optimal_schedule(10.0, 2, spectrum=[1.0, 0.5]), r"as a tensor of floats, got a list"),
    "complex": (
        lambda: polynomial_bound(10.0, 2, "rms", torch.ones(3, dtype=torch.complex128)),
        r"as a tensor of floats, got a tensor of torch.complex128",
    ),
    "another κ": (lambda: polynomial_bound(10.0, 3, "rms", Spectrum.interval(9.0)), r"the Spectrum is one of κ = 9"),
    "starts": (lambda: optimal_schedule(10.0, 3, starts=0), r"starts=0 must be at least 1"),
    "initial": (lambda: optimal_schedule(10.0, 3, initial=[([0.1], [1.0])]), r"of depth 3 .* got 1 and 1"),
    "NaN": (lambda: optimal_schedule(10.0, 1, initial=[([0.1], [float("nan")])]), r"holds NaN or inf"),
    "d": (lambda: Spectrum.log_uniform(10.0, d=1), r"d=1 must be at least 2"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_sentence(name: str):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
