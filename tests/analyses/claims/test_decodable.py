"""The claim decodable at small sizes, and what it makes of scores that are known."""

import pytest

from analyses.claims import decodable
from analyses.claims.claim import Settings
from analyses.claims.criteria.decoding import DECODING
from interp.probes import LayerScore, ProbeReport, probe
from interp.probes.scores import Score
from models import zoo


def layer(depth: int, score: float, untrained: float = 0.1, prompt: float = 0.2) -> LayerScore:
    def near(value: float) -> Score:
        return Score(value, (value - 0.01, value + 0.02))

    return LayerScore(f"hook {depth}", depth, near(score), near(0.0), near(untrained), near(prompt))


def report(*scores: float, target: str = "w") -> ProbeReport:
    layers = tuple(layer(depth, score) for depth, score in enumerate(scores))
    return ProbeReport(target, target, "pooled over context", "ridge", layers, 75, 25, 5)


def test_the_excess_is_over_the_largest_control_where_the_score_is_best():
    found = decodable.excess(report(0.3, 0.9, 0.5), "note")
    assert found.value == pytest.approx(0.7) and found.interval == pytest.approx((0.67, 0.73))
    assert "depth 1" in found.note and "prompt alone 0.200" in found.note
    low = decodable.excess(report(0.3), "", layer(0, 0.3, untrained=0.8))
    assert low.value == pytest.approx(-0.5) and "untrained" in low.note


def test_depths_are_those_of_the_best_scores():
    w, xty = report(0.1, 0.2, 0.9, 0.8), report(0.1, 0.95, 0.4, 0.4, target="xty")
    assert decodable.late(w, "").value == pytest.approx(2 / 3)
    assert decodable.order(w, xty, "").value == 1 and decodable.order(xty, w, "").value == -1
    assert decodable.parity(w, "").value == 0.9


def test_every_criterion_is_measured_from_the_probes_of_the_table():
    findings = decodable.measure(Settings(), prompts=160)
    assert set(findings.measurements) == set(DECODING["decodable"])
    name = f"{decodable.LINEAR}, w, second moments of the context rows"
    again = probe(
        zoo.load(decodable.LINEAR).double(),
        zoo.prompts(decodable.LINEAR, 160, seed=0),
        "w",
        reading="second-moment",
    )
    scores = [entry["score"] for entry in findings.details[name]["layers"]]
    assert scores == pytest.approx([entry.score.value for entry in again.layers], rel=1e-8)
    best = max(scores)
    controls = again.layers[scores.index(best)]
    control = max(controls.shuffled.value, controls.untrained.value, controls.prompt_only.value)
    assert findings.measurements["linear-attention"].value == pytest.approx(best - control, rel=1e-8)
    assert abs(findings.measurements["parity"].value) < 0.1
