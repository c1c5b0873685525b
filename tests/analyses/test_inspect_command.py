"""`interp inspect` and `interp import`: every form of file, and what the other commands make of an imported model."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from analyses.cli import app
from analyses.terminal import run_app
from models import checkpoints
from tests.builders import random_model
from tests.models.foreign.published import published
from tests.models.foreign.test_gpt2_icl import Network
from tests.models.foreign.test_haiku import tree
from tests.models.foreign.test_lsa_layernorm import network

RNG = np.random.default_rng(0)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_app(app, [str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One file of each form."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    torch.save({"model_state_dict": Network().state_dict()}, folder / "gpt2.pt")
    torch.save({"model_state_dict": network().state_dict()}, folder / "norms.pt")
    (folder / "haiku.pkl").write_bytes(pickle.dumps(tree(heads=1)))
    np.savez(folder / "merged.npz", P=0.1 * RNG.standard_normal((2, 5, 5)), Q=0.1 * RNG.standard_normal((2, 5, 5)))
    np.savez(folder / "matrices.npz", **{name: 0.3 * RNG.standard_normal((2, 5, 5)) for name in "QKVO"})
    checkpoints.save(random_model(3, 2, 1, 1, seed=0), folder, "ours")
    return {file.stem: file for file in folder.iterdir()}


FORMATS = {
    "gpt2": "gpt2-icl",
    "norms": "lsa-layernorm",
    "haiku": "haiku",
    "merged": "merged",
    "matrices": "matrices",
    "ours": "checkpoint of this package",
}


@pytest.mark.parametrize("name", FORMATS)
def test_inspect_says_what_a_file_is(name: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    options = ["--heads", 2] if name == "gpt2" else []
    code, text, _ = run(capsys, "inspect", files[name], *options)
    assert code == 0 and f"format    {FORMATS[name]}" in text
    code, document, _ = run(capsys, "inspect", files[name], *options, "--format", "json")
    (entry,) = json.loads(document)
    assert code == 0 and entry["format"] == FORMATS[name] and entry["shapes"] and entry["problem"] is None
    exact = name not in ("gpt2", "norms")
    assert (entry["asks"]["unroll"] == "yes") == exact
    assert name == "ours" or (entry["parity"]["holds"] and len(entry["provenance"]["sha256"]) == 64)


def test_inspect_a_directory_and_a_file_that_needs_an_option(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    files["haiku"].with_name("broken.pkl").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    code, document, _ = run(capsys, "inspect", files["haiku"].parent, "--format", "json")
    entries = {Path(entry["path"]).stem: entry for entry in json.loads(document)}
    assert code == 1 and set(entries) == {*FORMATS, "broken"}
    assert "give --heads" in entries["gpt2"]["problem"] and entries["gpt2"]["format"] == "gpt2-icl"
    assert "asks for os.system" in entries["broken"]["problem"]
    code, text, _ = run(capsys, "inspect", files["haiku"].parent)
    assert code == 1 and text.count("problem  ") == 2


@pytest.mark.parametrize("spelling", ["", ".json", ".safetensors"])
def test_inspect_finds_a_checkpoint_by_any_of_its_names(
    spelling: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    code, text, _ = run(capsys, "inspect", f"{files['ours'].with_suffix('')}{spelling}")
    assert code == 0 and "checkpoint of this package" in text


def test_inspect_refuses_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    torch.save({"wte.weight": torch.ones(9, 4), "h.0.ln_1.weight": torch.ones(4)}, tmp_path / "words.pt")
    code, text, _ = run(capsys, "inspect", tmp_path / "words.pt")
    assert code == 1 and "words.pt is a model of a vocabulary, which reads words" in text
    code, _, error = run(capsys, "inspect", tmp_path / "absent.pt")
    assert code == 2 and error.count("\n") == 1 and "No such file" in error
    (tmp_path / "empty").mkdir()
    code, _, error = run(capsys, "inspect", tmp_path / "empty")
    assert code == 2 and "holds no file of weights" in error


@pytest.mark.parametrize("name", ["haiku", "merged", "matrices"])
def test_an_imported_linear_model_is_unrolled_exactly(
    name: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, text, _ = run(capsys, "import", files[name], "--format", FORMATS[name], "--out", tmp_path / "own")
    assert code == 0 and "(holds)" in text
    _, document, _ = run(capsys, "unroll", tmp_path / "own" / name, "--prompts", 16, "--format", "json")
    assert json.loads(document)["certificate"]["exact"]["max_relative_error"] < 1e-10
    metadata = checkpoints.read_metadata(tmp_path / "own" / name)
    assert metadata["source"]["file"] == files[name].name and metadata["source"]["loader"] == FORMATS[name]
    code, _, error = run(capsys, "import", files[name], "--out", tmp_path / "own")
    assert code == 2 and "there is a checkpoint" in error
    assert run(capsys, "import", files[name], "--out", tmp_path / "own", "--name", "again")[0] == 0


@pytest.mark.parametrize("command", ["unroll", "identify", "decode", "probe"])
def test_a_command_that_cannot_take_an_imported_gpt2_says_so(
    command: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["import", files["gpt2"], "--heads", 2, "--task", "StandardRegression,n=7,d=4", "--out", tmp_path]
    code, document, _ = run(capsys, *arguments, "--print", "json")
    assert code == 0 and json.loads(document)["asks"][command] != "yes"
    code, out, error = run(capsys, command, tmp_path / "gpt2")
    assert (code, out) == (2, "") and error.count("\n") == 1
    assert ("attention kernel is softmax" if command in ("unroll", "identify") else "never both") in error


def test_kernels_of_an_imported_gpt2_are_swapped(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["import", files["gpt2"], "--heads", 2, "--task", "StandardRegression,n=7,d=4", "--out", tmp_path]
    _, document, _ = run(capsys, *arguments, "--print", "json")
    assert json.loads(document)["asks"]["ablate"] == "yes"
    asked = ["--kernel", "softmax", "--kernel", "uniform", "--prompts", 8, "--format", "json"]
    code, document, _ = run(capsys, "ablate", tmp_path / "gpt2", *asked)
    rows = json.loads(document)["ablation"]["rows"]
    moved = {row["what"]: row["effects"]["moved"]["value"] for row in rows if len(row["layers"]) == 3}
    assert code == 0 and moved["softmax"] < 1e-12 < 1e-3 < moved["uniform"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "Regression,n=3"], "unknown prompt family 'Regression'"),
        (["--task", "StandardRegression,n=7,d=x"], "the entry 'd=x', which is not NAME=NUMBER"),
        (["--task", "StandardRegression,n=7,d=9"], "make tokens of 10 columns, pairs, and the model takes 6 columns"),
        (["--heads", "2"], "the format lsa-layernorm has no option heads"),
        (["--format", "haiku"], "belongs to no linear attention layer"),
        (["--name", "a/b"], "needs a plain file name"),
    ],
)
def test_import_refuses_in_a_sentence(
    options: list[str], message: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, error = run(capsys, "import", files["norms"], "--out", tmp_path / "own", *options)
    assert (code, out) == (2, "") and message in error and error.count("\n") == 1
    assert not (tmp_path / "own").exists()


def test_the_published_positional_model_is_unrolled_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where = "x=10,y=1,position=5,answer=1,readout=answer,sign=-1"
    file, task = published("lsa_1layer_posenc.pkl"), "UniformRegression,n=10,d=10"
    assert run(capsys, "import", file, "--out", tmp_path, "--layout", where, "--task", task)[0] == 0
    code, document, _ = run(capsys, "unroll", tmp_path / file.stem, "--prompts", 16, "--format", "json")
    values = json.loads(document)
    assert code == 1 and values["certificate"]["exact"]["max_relative_error"] < 1e-10
    assert values["prompts"]["stated_by_checkpoint"] is True


def test_a_task_of_fewer_labels_than_the_model_answers_is_refused(tmp_path, capsys):
    matrices = {name: np.eye(6) for name in ("key", "query", "value", "linear")}
    (tmp_path / "net.pkl").write_bytes(pickle.dumps({f"l/{name}": {"w": W} for name, W in matrices.items()}))
    stated = ["--layout", "x=3,y=1,position=2,readout=position", "--task", "UniformRegression,n=4,d=3"]
    code, _, err = run(capsys, "import", tmp_path / "net.pkl", "--out", tmp_path / "out", *stated)
    assert code == 2 and "1 label columns and the model answers with 2" in err
