import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from analyses import decode_model
from analyses.cli import app
from analyses.decode_model import main
from analyses.terminal import run_app
from models import checkpoints
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model

FAST = ["--prompts", "4"]
FAMILY = LogUniformSpectrum(n=8, d=3, n_query=2, d_out=2, kappa=4)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("mine")
    model = eagle_model([-1.3, -2.0], [1.3, 2.0], FAMILY.layout(), noise=1e-3)
    checkpoints.save(model, directory, "mine", {"task": FAMILY.to_dict()})
    return str(directory)


def test_decode_as_json(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["decode", "eagle-d10", "--format", "json", *FAST]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["model"] == "eagle-d10" and values["agrees"] is True and len(values["depths"]) == 5
    for depth, entry in enumerate(values["depths"]):
        assert entry["depth"] == depth and entry["agreement"] < 1e-8 and entry["mixed_agreement"] < 1e-7
    for name in ("w_relative_error", "inverse_hessian_relative_error"):
        errors = [entry[name] for entry in values["depths"]]
        assert errors[0] == pytest.approx(1) and errors == sorted(errors, reverse=True) and errors[-1] < 0.02
    assert all(swap["error"] < 1e-10 for swap in values["interchange"])
    form = values["closed_form"]
    distance, core = (form[name]["central_rms_relative_error"] for name in ("output", "core_certificate"))
    assert distance == pytest.approx(core) and core != form["words_certificate"]["central_rms_relative_error"]
    assert {write["rows"] for write in values["written"]} == {"query", "all"}
    assert all(write["error"] < 1e-8 for write in values["written"])


def test_text_and_figure(mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure = tmp_path / "deep" / "decode.png"
    assert main([mine, "--figure", str(figure), *FAST]) == 0
    output = capsys.readouterr()
    assert figure.read_bytes().startswith(b"\x89PNG") and "figure" in output.err
    assert all(len(text) <= 120 for text in output.out.splitlines())
    assert re.search(r"w against least squares +1 .*\n.*inverse Hessian against G", output.out)
    assert re.search(r"certificate of the two words: .*, of all words: ", output.out)
    assert "causal check" in output.out and "all rows, share of B δ" in output.out


def test_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    figure = tmp_path / "decode.png"
    arguments = ["decode", "eagle-distributed", "--format", "json", "--figure", str(figure), *FAST]
    assert run_app(app, arguments) == 0
    values = json.loads(capsys.readouterr().out)
    assert "no single G" in values["undefined"]["inverse Hessian"] and figure.exists()
    assert all(entry["inverse_hessian_relative_error"] is None for entry in values["depths"])
    assert all(entry["w_relative_error"] is not None for entry in values["depths"])


def test_a_softmax_transformer(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["decode", "linreg-softmax", *FAST]) == 0
    text = capsys.readouterr().out
    assert "NOT linear" in text and "prompts go on from another" in text
    assert "the rule is off" not in text and "w moved by" not in text


def test_every_pair_of_roads_counts(mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Roads to ∂w/∂y that part change the exit code, and so do those to w."""
    found = decode_model.run(decode_model.Config(mine, 4))
    assert found.agrees and found.decoding.mixed_agreement.max() <= 1e-7
    for name, bound in (("mixed_agreement", "1e-07"), ("agreement", "1e-08")):
        apart = torch.full_like(found.decoding.agreement, 1e-6)
        parted = replace(found, decoding=replace(found.decoding, **{name: apart}))
        assert not parted.agrees and parted.to_dict()["agrees"] is False
        monkeypatch.setattr(decode_model, "run", lambda config, parted=parted: parted)
        assert run_app(app, ["decode", mine, *FAST]) == 1
        assert f"1e-06 apart, not {bound}" in capsys.readouterr().err
    unknown = replace(found.decoding, mixed_agreement=torch.full_like(found.decoding.agreement, torch.nan))
    assert not replace(found, decoding=unknown).agrees


BAD = {
    "unknown model": (lambda path: ["eagle-d11"], "unknown model 'eagle-d11'"),
    "few prompts": (lambda path: ["eagle-d10", "--prompts", "1"], "prompts=1 must be at least 2"),
    "figure is a directory": (lambda path: ["eagle-d10", "--figure", str(path), *FAST], "it is a directory"),
    "unknown format": (lambda path: ["eagle-d10", "--format", "latex"], "latex"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_in_a_sentence(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments, message = BAD[case]
    assert run_app(app, ["decode", *arguments(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and re.search(message, output.err) and len(output.err.splitlines()) == 1
