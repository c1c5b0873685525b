import json
from pathlib import Path

import pytest

from analyses.cli import app
from analyses.terminal import run_app

FAST = ["--prompts", "160"]


def test_probe_as_json(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["probe", "eagle-d10", "--target", "w", "--format", "json", *FAST]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["model"] == "eagle-d10" and values["target"] == "w" and values["train"] == 120
    assert [layer["depth"] for layer in values["layers"]] == [0, 1, 2, 3, 4]
    for layer in values["layers"]:
        assert {"score", "shuffled", "untrained", "prompt_only", "interval"} <= set(layer)
        assert layer["interval"][0] <= layer["score"] <= layer["interval"][1]
    assert values["layers"][4]["score"] > 0.9 and values["best"] == "blocks.3.hook_resid_post"
    assert values["layers"][4]["above_controls"] and not values["layers"][0]["above_controls"]


@pytest.mark.parametrize("target", ["xty", "hessian", "prediction", "dual"])
def test_every_target_prints_a_table(target: str, capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["probe", "eagle-d10", "--target", target, "--hook", "blocks.0.hook_resid_post", *FAST]) == 0
    text = capsys.readouterr().out
    assert "blocks.0.hook_resid_post" in text and "shuffled" in text and "untrained" in text and "prompt only" in text


def test_figure_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure, out = tmp_path / "deep" / "probe.png", tmp_path / "probe.txt"
    options = ["--figure", str(figure), "--out", str(out), "--reading", "second-moment", "--ridge", "0.1"]
    assert run_app(app, ["probe", "eagle-scalar", *options, *FAST]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG") and capsys.readouterr().out == ""
    text = out.read_text(encoding="utf-8")
    assert "second-moment over context" in text and "λ = 0.1" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "colour"], "colour"),
        (["--hook", "blocks.9.hook_resid_post"], "no hook point"),
        (["--prompts", "3"], "too few"),
        (["--alpha", "0", "--prompts", "60"], "without a penalty"),
        (["--reading", "rows"], "no value for each"),
        (["--reading", "weighted", "--probe", "mlp"], "least squares"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(options, message: str, capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["probe", "eagle-scalar", *options]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
