import json
import os
import re
from pathlib import Path

import pytest
import torch

from analyses.cli import app
from analyses.terminal import run_app, to_json
from analyses.unroll_model import Config, main, run
from models import checkpoints, zoo
from models.config import TransformerConfig
from models.constructions.disguises import rotated
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer
from tests.builders import eagle_model, random_model

FAST = ["--prompts", "64"]
FAMILY = LogUniformSpectrum(n=10, d=5, n_query=2, d_out=3, kappa=10.0)


def stored(directory: Path, model: HookedTransformer, task: bool = True) -> str:
    checkpoints.save(model, directory, "mine", {"task": FAMILY.to_dict()} if task else {})
    return str(directory)


def test_unroll_as_json(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["unroll", "eagle-d10", "--format", "json", *FAST]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["model"] == "eagle-d10" and values["certified"] is True
    assert set(values["layers"][0]["words"]) >= {"z_x S_xx → x", "z_x S_xy → y"}
    assert values["layers"][0]["explained"]["function"] >= 0.999
    assert len(values["closed_form"]["p"]) == 5
    for level in ("exact", "words", "core"):
        assert {"max_relative_error", "rms_relative_error", "prompts", "dtype"} <= set(values["certificate"][level])
    assert "heads" not in values["layers"][0] and "inputs × 0.5" in values["edges"]


def test_every_format_and_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for form, mark in {"text": "verdict: certified", "latex": r"\begin{align*}", "python": "def predict"}.items():
        out = tmp_path / f"rule.{form}"
        assert run_app(app, ["unroll", "eagle-d10", "--format", form, "--out", str(out), *FAST]) == 0
        assert mark in out.read_text(encoding="utf-8") and capsys.readouterr().out == ""
    assert run_app(app, ["unroll", "eagle-d10", "--exact", *FAST]) == 0
    assert "matrices of the exact level" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rule.latex", "rule.python", "rule.text"]


def test_figure(tmp_path: Path):
    assert main(["eagle-d10", "--figure", str(tmp_path / "deep" / "figure.png"), *FAST]) == 0
    assert (tmp_path / "deep" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_models_lists_the_zoo(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["models"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in zoo.names())
    assert run_app(app, ["models", "--format", "json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == zoo.names()


def test_own_checkpoint_gives_the_same_answer_as_its_weights(tmp_path: Path):
    model = eagle_model([-1.3, -2.0], [1.3, 2.0], FAMILY.layout(sign=-1), noise=1e-4)
    result = run(Config(stored(tmp_path, model), prompts=64))
    assert result.certified and result.subject.stated
    from interp import unroll

    assert [layer.labelled("words") for layer in unroll(model).layers] == [
        pytest.approx({word: value for word, value in layer.labelled("words").items()}, rel=1e-3, abs=1e-6)
        for layer in result.rule.layers
    ]
    again = run(Config(str(tmp_path / "mine.json"), prompts=64))
    assert again.to_dict()["layers"] == result.to_dict()["layers"]


def test_checkpoint_without_a_task_says_what_was_assumed(tmp_path: Path):
    model = eagle_model([-1.3, -2.0], [1.3, 2.0], FAMILY.layout(sign=-1))
    result = run(Config(stored(tmp_path, model, task=False), prompts=16))
    assert not result.subject.stated and "assumed" in str(result)
    assert result.to_dict()["prompts"]["stated_by_checkpoint"] is False


@pytest.mark.parametrize("order", ["y first", "rotated"])
def test_prompts_follow_the_layout_of_the_checkpoint(order: str, tmp_path: Path):
    """The same model with its columns in another order, or in another basis, is certified with the same errors."""
    model = eagle_model([-1.3, -2.0], [1.3, 2.0], FAMILY.layout(sign=-1), noise=1e-4)
    eye = torch.eye(8, dtype=torch.float64)
    noise = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis = eye[:, [3, 4, 5, 6, 7, 0, 1, 2]] if order == "y first" else torch.linalg.qr(noise)[0]
    turned = run(Config(stored(tmp_path / "turned", rotated(model, basis)), prompts=64))
    plain = run(Config(stored(tmp_path / "plain", model), prompts=64))
    for level in ("words", "core"):
        values = [result.certificate.levels[level].output.rms_relative_error for result in (turned, plain)]
        assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_random_weights_are_answered_with_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = random_model(5, 3, 3, 2, seed=0)
    assert run_app(app, ["unroll", stored(tmp_path, model), "--format", "json", *FAST]) == 1
    output = capsys.readouterr()
    values = json.loads(output.out)
    assert values["certified"] is False and values["certificate"]["exact"]["max_relative_error"] <= 1e-10
    assert {failure.split()[0] for failure in values["failures"]} == {"words", "core"}
    assert "not certified" in output.err


def test_train_and_unroll(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    assert (
        run_app(
            app, ["train", "eagle-scalar", "--out", str(out), "--steps", "30", "--device", "cpu", "--format", "json"]
        )
        == 0
    )
    values = json.loads(capsys.readouterr().out)
    assert values["recipe"]["steps"] == 30 and 0 <= values["history"][-1]["distance"] <= 1
    assert run_app(app, ["unroll", str(out), *FAST]) == 1  # 30 steps are no training
    assert run_app(app, ["train", "eagle-scalar", "--out", str(out), "--steps", "30", "--device", "cpu"]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_train_a_transformer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It has no words: nothing is said of their distance, and nothing is unrolled."""
    out = str(tmp_path / "run")
    assert run_app(app, ["train", "linreg-softmax", "--out", out, "--steps", "2", "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert "linreg-softmax.json: median relative error" in output.out and f"interp decode {out}" in output.err
    assert run_app(app, ["unroll", out, *FAST]) == 2
    assert "its attention kernel is softmax" in capsys.readouterr().err


def _truncated(tmp_path: Path) -> str:
    path = stored(tmp_path, random_model(3, 2, 1, 1, seed=0))
    file = tmp_path / "mine.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    return path


def _without_weights(tmp_path: Path) -> str:
    path = stored(tmp_path, random_model(3, 2, 1, 1, seed=0))
    (tmp_path / "mine.safetensors").unlink()
    return path


def _softmax(tmp_path: Path) -> str:
    from interp.kernels import AttentionKernel

    cfg = TransformerConfig(1, 1, 8, 8, kernel=AttentionKernel("exp", "sum"))
    return stored(tmp_path, HookedTransformer(cfg, FAMILY.layout(sign=-1)))


def _other_width(tmp_path: Path) -> str:
    return stored(tmp_path, random_model(3, 2, 1, 1, seed=0))  # the task stored beside it has eight columns


BAD = {
    "unknown model": (lambda path: ["unroll", "eagle-d11"], "unknown model 'eagle-d11'.*eagle-d10"),
    "empty directory": (lambda path: ["unroll", str(path)], "holds no weights"),
    "no weights": (lambda path: ["unroll", _without_weights(path)], "safetensors"),
    "truncated": (lambda path: ["unroll", _truncated(path)], "SHA-256"),
    "softmax": (lambda path: ["unroll", _softmax(path)], "softmax.*interp.hooks.capture"),
    "prompts of another width": (lambda path: ["unroll", _other_width(path)], "task has 5 input columns"),
    "out is a directory": (lambda path: ["unroll", "eagle-d10", "--out", str(path), *FAST], "it is a directory"),
    "figure is a directory": (lambda path: ["unroll", "eagle-d10", "--figure", str(path), *FAST], "it is a directory"),
    "seed out of range": (lambda path: ["unroll", "eagle-d10", "--seed", "9000000000000000000"], "seed"),
    "no float64": (lambda path: ["unroll", "eagle-d10", "--device", "meta"], "meta"),
    "unknown format": (lambda path: ["unroll", "eagle-d10", "--format", "yaml"], "yaml"),
    "unknown option": (lambda path: ["unroll", "eagle-d10", "--formt", "json"], "formt"),
    "unknown command": (lambda path: ["unrol"], "unrol"),
    "no model": (lambda path: ["unroll"], "(?i)model"),
    "exact latex": (lambda path: ["unroll", "eagle-d10", "--format", "latex", "--exact", *FAST], "no LaTeX form"),
    "few prompts": (lambda path: ["unroll", "eagle-d10", "--prompts", "0"], "prompts=0"),
    "error of zero": (lambda path: ["unroll", "eagle-d10", "--core-error", "0"], "core_error=0"),
    "unknown recipe": (
        lambda path: ["train", "eagel", "--out", str(path / "run")],
        "unknown recipe 'eagel'.*eagle-d10",
    ),
    "unknown device": (lambda path: ["train", "eagle-d10", "--out", str(path / "r"), "--device", "tpu9"], "tpu9"),
    "nothing to resume": (
        lambda path: ["train", "eagle-d10", "--out", str(path / "run"), "--resume"],
        "no run to resume",
    ),
    "no such folder": (
        lambda path: ["unroll", "eagle-d10", "--out", str(path / "no" / "rule.txt"), *FAST],
        "cannot write",
    ),
    "no right to write": (lambda path: ["unroll", "eagle-d10", "--out", "/proc/rule.txt", *FAST], "cannot write"),
    "no figure there": (lambda path: ["unroll", "eagle-d10", "--figure", "/proc/x/f.png", *FAST], "cannot write"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_exit_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments, message = BAD[name]
    code = run_app(app, arguments(tmp_path))
    output = capsys.readouterr()
    assert code == 2 and output.out == ""
    lines = output.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in lines[0]
    assert re.search(message, lines[0])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "rule.txt"
    out.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert run_app(app, ["unroll", "eagle-d10", "--out", str(out), *FAST]) == 2
    assert out.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [out]


def test_json_has_no_infinities():
    assert json.loads(to_json({"a": [1.0, float("inf")], "b": (float("nan"),)})) == {"a": [1.0, None], "b": [None]}


def test_seed_changes_the_prompts_and_not_the_rule():
    first, second = (run(Config("eagle-d10", seed=seed, prompts=16)) for seed in (0, 1))
    assert first.certificate.levels["words"].output != second.certificate.levels["words"].output
    assert torch.equal(first.rule.layers[0].groups[0].group.Q, second.rule.layers[0].groups[0].group.Q)
