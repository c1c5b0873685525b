from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.sketch import TOLERANCE, Sizes, measure_at
from analyses.claims.systems import log_uniform
from interp.convergence import steps_to, trajectory
from interp.solvers import EAGLE, T3, iterate


def test_without_a_sketch_the_iterations_are_eagles(tmp_path):
    sizes = Sizes(n=16, prompts=3, steps=400, timed=32, repeats=2)
    findings = measure_at(sizes, Settings(seed=1))
    system = log_uniform(100.0, (16, 16), 3, seed=1)
    for name, solver in (("theory (1/3, 1)", EAGLE()), ("T₃ (4/3, 4/3)", EAGLE(*T3))):
        expected = steps_to(trajectory(iterate(solver, system.problem, 30), system.exact), TOLERANCE)
        counts = findings.details["iterations"][name]
        assert counts["1"] == list(expected.steps)
        assert min(counts["8"]) > max(counts["1"])
    assert all(len(values) == 2 and min(values) > 0 for values in findings.details["seconds"].values())
    assert set(findings.measurements) == set(CRITERIA["sketch"])
    assert findings.draw is not None
    findings.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
