"""The scorecard and its command, on claims made for the test."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from analyses import claims, reproduce
from analyses.claims.claim import Band, Claim, Criterion, Findings, Measurement, Settings
from analyses.claims.plots import draw_curves
from analyses.claims.scorecard import score, table

CRITERIA = {
    "low": Criterion("a number", "at most 1", "nowhere", holds=Band(high=1), partly=Band(high=2)),
    "high": Criterion("another", "at least 3", "nowhere", holds=Band(low=3), partly=Band(low=2)),
}


def claim(values: dict[str, float], with_figure: bool = False) -> Claim:
    measured = {name: Measurement.exact(value, "by hand") for name, value in values.items()}

    def draw(path: Path) -> None:
        draw_curves({"line": ([1, 2], [1, 10])}, path, title="t", x="x", y="y", marks={"one": 1})

    return Claim(
        "made-up",
        "It is so.",
        CRITERIA,
        lambda settings: Findings(measured, "numbers", {"seed": settings.seed}, draw if with_figure else None),
    )


def test_rows_say_what_was_published_measured_and_concluded(tmp_path):
    scored = score(claim({"low": 1.5, "high": 3}, with_figure=True), Settings(seed=7), tmp_path)
    assert [row.verdict for row in scored.rows] == ["partly", "reproduced"]
    assert [row.claim for row in scored.rows] == ["made-up/low", "made-up/high"]
    first = scored.rows[0].to_dict()
    assert {"claim", "published", "measured", "verdict", "seconds", "figure"} <= set(first)
    assert first["measured"] == 1.5 and first["criterion"] == "≤ 1" and Path(first["figure"]).stat().st_size > 1000
    text = str(scored)
    assert "It is so." in text and "numbers" in text and "made-up/low: partly" in text and "at most 1" in text
    assert table(scored.rows).splitlines()[-1] == "1 reproduced, 1 partly, 0 not reproduced"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"low": 1.0}, "another: nothing was measured"),
        ({"low": 1.0, "high": math.nan}, "another: nan with the interval"),
        ({"low": 1.0, "high": 3.0, "extra": 1.0}, "made-up: measured extra, for which there is no criterion"),
    ],
)
def test_missing_and_surplus_measurements_are_errors(values, message):
    with pytest.raises(ValueError, match=message):
        score(claim(values), Settings())


@pytest.fixture
def stand_in(monkeypatch):
    def use(values: dict[str, float]) -> None:
        monkeypatch.setattr(claims, "names", lambda: ["made-up"])
        monkeypatch.setattr(claims, "load", lambda name: claim(values, with_figure=True))

    return use


@pytest.mark.parametrize(("high", "code"), [(3.0, 0), (2.5, 0), (1.0, 1)])
def test_exit_code_is_1_only_if_a_claim_is_not_reproduced(stand_in, capsys, high, code):
    stand_in({"low": 0.0, "high": high})
    assert reproduce.main(["--format", "json"]) == code
    rows = json.loads(capsys.readouterr().out)
    assert [row["verdict"] == "not reproduced" for row in rows] == [False, code == 1]


def test_figures_and_numbers_are_written_where_asked(stand_in, tmp_path, capsys):
    stand_in({"low": math.inf, "high": 3.0})
    assert reproduce.main(["--out", str(tmp_path / "new"), "--seed", "3"]) == 1
    stored = json.loads((tmp_path / "new" / "scorecard.json").read_text())
    assert stored["rows"][0]["measured"] is None and stored["settings"]["seed"] == 3
    assert stored["details"] == {"made-up": {"seed": 3}} and "torch" in stored["versions"]
    assert (tmp_path / "new" / "made-up.png").exists()
    captured = capsys.readouterr()
    assert captured.out.startswith("verdict") and "1/1 made-up" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["second-ordr"], "unknown claim 'second-ordr'; known: second-order, condition-number"),
        (["emergence", "--device", "tpu9"], "device 'tpu9' cannot be used here"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, capsys):
    assert reproduce.main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == "" and len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_in_the_place_of_the_directory_is_refused_before_measuring(tmp_path, capsys, inside):
    (tmp_path / "file").write_text("kept")
    assert reproduce.main(["emergence", "--out", str(tmp_path / "file" / ("new" if inside else ""))]) == 2
    captured = capsys.readouterr()
    assert "cannot be a directory for figures" in captured.err and "emergence" not in captured.err
    assert (tmp_path / "file").read_text() == "kept"


def test_a_claim_that_cannot_be_measured_does_not_stop_the_others(monkeypatch, tmp_path, capsys):
    made = {"good": claim({"low": 0.0, "high": 3.0}), "bad": claim({"low": 0.0})}
    monkeypatch.setattr(claims, "load", lambda name: made[name])
    assert reproduce.main(["bad", "good", "bad", "--out", str(tmp_path), "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert [row["claim"] for row in json.loads(captured.out)] == ["made-up/low", "made-up/high"]
    assert captured.err.count("made-up could not be measured: another: nothing was measured") == 1
    stored = json.loads((tmp_path / "scorecard.json").read_text())
    assert len(stored["rows"]) == 2 and list(stored["failed"]) == ["made-up"]


def test_what_was_measured_is_stored_when_a_run_is_interrupted(monkeypatch, tmp_path):
    def interrupt(settings: Settings) -> Findings:
        raise KeyboardInterrupt

    made = {"good": claim({"low": 0.0, "high": 3.0}), "slow": replace(claim({}), measure=interrupt)}
    monkeypatch.setattr(claims, "load", lambda name: made[name])
    assert reproduce.main(["good", "slow", "--out", str(tmp_path)]) == 130
    assert len(json.loads((tmp_path / "scorecard.json").read_text())["rows"]) == 2


@pytest.mark.parametrize("name", claims.names())
def test_every_claim_has_a_statement_and_a_measure(name):
    loaded = claims.load(name)
    assert loaded.statement.endswith(".") and callable(loaded.measure) and loaded.criteria
