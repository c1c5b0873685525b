from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.diversity import COUNTS, TOLERANCE, Sizes, measure_at
from analyses.claims.machines import diverse_system
from interp.convergence import steps_to, trajectory
from interp.solvers import EAGLE, iterate


def test_one_machine_takes_eagles_iterations(tmp_path):
    sizes = Sizes(d=8, prompts=3, steps=120)
    findings = measure_at(sizes, Settings(seed=2))
    system = diverse_system(1.0, 1, 8, 100.0, 3, seed=2)
    eagle = steps_to(trajectory(iterate(EAGLE(), system.problem, 30), system.exact), TOLERANCE)
    assert findings.details["machines"]["1"][0] == list(eagle.steps)
    assert len(findings.details["machines"]["1"]) == len(COUNTS)
    assert findings.details["alpha"]["estimation (1/3, 1)"]["0.01"] == [121.0] * 3  # not reached: a lower bound
    assert [round(values[0], 9) for values in findings.details["diversity"]] == [1.0, 0.83, 0.35, 0.01]
    assert set(findings.measurements) == set(CRITERIA["diversity"])
    assert "> 120" in findings.table
    assert findings.draw is not None
    findings.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
