import pytest

from analyses.claims.claim import Settings
from analyses.claims.wording.counts import TEXTS, Sizes, ideal_sketches, measure, system_of
from interp.convergence import steps_to, trajectory
from interp.solvers import EAGLE, T3, iterate


def test_counts_are_eagles_own():
    settings = Settings(seed=3)
    findings = measure(Sizes(prompts=4, steps=60), settings)
    for kappa, solver, column in ((30.0, EAGLE(), "κ = 30"), (100.0, EAGLE(*T3), "T₃, κ = 100")):
        system = system_of(TEXTS["full"], kappa, 4, settings)
        expected = steps_to(trajectory(iterate(solver, system.problem, 30), system.exact), 0.02)
        assert findings.details["counts"]["full"][column] == list(expected.steps)
    assert set(findings.measurements) == {"full", "distributed", "rank-limited"}
    assert findings.measurements["full"].value == sorted(findings.details["counts"]["full"]["κ = 100"])[1]


def test_more_machines_or_smaller_sketches_do_not_help():
    counts = measure(Sizes(prompts=4, steps=60), Settings()).details["counts"]
    for column in ("κ = 10", "κ = 100"):
        assert min(counts["rank-limited"][column]) > max(counts["full"][column])


def test_a_step_that_finishes_half_of_the_directions_halves_the_square():
    halvings = 2 * 5.32  # log₂ 1/.025 = 5.32, and half of the squared norm is left each step
    assert ideal_sketches(0.025, 400, seed=0) == pytest.approx(halvings, abs=1.5)
