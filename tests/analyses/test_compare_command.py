"""interp compare on a small untrained checkpoint: its verdict is none, whatever else is printed or drawn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analyses import compare_model
from analyses.cli import app
from analyses.compare_model import Config, built_control
from analyses.terminal import run_app
from interp.comparison import CANDIDATES, OWN, PRECONDITIONED_RICHARDSON, TO_KRR, Rules
from interp.comparison.control import run_control
from models import checkpoints
from models.prompts import GaussianProcess
from models.recipes_of_processes import PROCESSES
from models.transformer import HookedTransformer

FAST = ["--prompts", "8", "--seeds", "2", "--steps", "4", "--solver", "CG", "--solver", PRECONDITIONED_RICHARDSON]
TINY = Config("", control_prompts=8, control_steps=3, control_m=64, seeds=2)


@pytest.fixture
def tiny_control(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare_model, "built_control", lambda config: built_control(TINY))


@pytest.fixture
def checkpoint(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    family = GaussianProcess(n=8, token_format=getattr(request, "param", "pair"))
    cfg = replace(PROCESSES[0].architecture, n_layers=2, d_model=8, d_head=8, d_mlp=16)
    return checkpoints.save(HookedTransformer(cfg, family.layout()), tmp_path, "young", {"task": family.to_dict()})


@pytest.mark.parametrize("checkpoint", ["pair", "alternating"], indirect=True)
def test_json_of_an_untrained_model(checkpoint: Path, tiny_control: None, capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["compare", str(checkpoint), "--format", "json", *FAST]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["verdict"] == "none" and values["names"] == [] and values["model"] == "young"
    assert set(values["readouts"]) == {"own read-out", "probe to target", "probe to KRR"}
    for readout in values["readouts"].values():
        assert len(readout["distance_to_krr"]) == 2 and set(readout["metrics"]) == {"A", "A-lin", "C"}
        assert set(readout["layer_by_step"]) == {"CG", PRECONDITIONED_RICHARDSON}
    assert values["controls"]["built"]["truth"] == PRECONDITIONED_RICHARDSON
    assert len(values["controls"]["random"]) == 2


def test_text_and_figures(checkpoint: Path, tiny_control: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    prefix = tmp_path / "deep" / "young"
    assert run_app(app, ["compare", str(checkpoint), "--figure", str(prefix), "--clustered", "0.6", *FAST]) == 0
    text = capsys.readouterr().out
    assert "60% of inputs clustered" in text and "verdict: none" in text and "built Richardson network" in text
    for kind in ("heat", "fan"):
        assert prefix.with_name(f"young-{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_the_built_network_is_named_by_its_read_out():
    found = run_control(built_control(replace(TINY, control_m=256, control_steps=4)), CANDIDATES, 12, Rules())
    by = found.judged[OWN]["A-lin"]
    assert found.behaves(OWN, "A-lin") and by.distance[PRECONDITIONED_RICHARDSON] < 3e-3
    assert all(value > 0.015 for name, value in by.distance.items() if name != PRECONDITIONED_RICHARDSON)
    assert by.assigned[PRECONDITIONED_RICHARDSON].steps == (0, 1, 2, 3, 4)
    assert found.judged[TO_KRR]["A-lin"].best == PRECONDITIONED_RICHARDSON


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eagle-d10"], "no kernel system"),
        (["gone"], "unknown model"),
        ([None, "--solver", "Gauss"], "unknown solver"),
        ([None, "--seeds", "1"], "no spread"),
        ([None, "--steps", "1"], "at least the model's 2 layers"),
        ([None, "--prompts", "1"], "must be at least 2"),
        ([None, "--clustered", "1.5"], "share"),
        ([None, "--readout", "tea leaves"], "tea leaves"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments, message: str, checkpoint: Path, tiny_control: None, capsys: pytest.CaptureFixture[str]
):
    assert run_app(app, ["compare", *[argument or str(checkpoint) for argument in arguments]]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
