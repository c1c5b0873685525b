"""Checkpoints: round trips, what a failed write leaves behind, and every way a checkpoint can be wrong."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models import checkpoints, provenance
from models.checkpoints import CheckpointError
from models.config import TransformerConfig
from models.transformer import HookedTransformer

EAGLE = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1)
ROTATION = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))).Q
MODELS = {
    "linear": HookedTransformer(TransformerConfig(2, 1, 5, 5), EAGLE),
    "float64": HookedTransformer(TransformerConfig(2, 1, 5, 5, seed=1), EAGLE).double(),
    "rotated": HookedTransformer(
        TransformerConfig(1, 2, 5, 3), BlockLayout({"x": ROTATION[:, :3], "y": ROTATION[:, 3:]}, machines=2)
    ).double(),
    "softmax": HookedTransformer(
        TransformerConfig(
            n_layers=2,
            n_heads=2,
            d_model=6,
            d_head=3,
            kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
            attn_only=False,
            d_mlp=7,
            act_fn="gelu",
            normalization_type="LN",
            use_biases=True,
            positional_embedding_type="standard",
            n_ctx=9,
            d_in=5,
            d_out=2,
        ),
        BlockLayout.standard(x=3, y=2, visibility=[Visibility(), Visibility("causal", "causal")]),
    ),
    "learned": HookedTransformer(TransformerConfig(1, 1, 5, 3, AttentionKernel("learned"), d_feature=4), EAGLE),
}
METADATA = {"recipe": "eagle", "seed": 3, "metrics": {"error": 1e-3, "history": [1, 2.5, None]}, "note": "κ = 10"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A directory with one checkpoint, "eagle"."""
    checkpoints.save(MODELS["linear"], tmp_path, "eagle", METADATA)
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_bitwise(name: str, tmp_path: Path):
    model = MODELS[name]
    path = checkpoints.save(model, tmp_path / "new" / "directory", name, METADATA)
    again = checkpoints.load(path)
    assert (again.cfg, again.layout, again.dtype) == (model.cfg, model.layout, model.dtype)
    tokens = torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(0)).to(model.dtype)
    assert torch.equal(again(tokens), model(tokens))
    assert checkpoints.read_metadata(path) == METADATA


@pytest.mark.parametrize("spelling", ["", "eagle", "eagle.json", "eagle.safetensors"])
def test_a_checkpoint_is_found_by_directory_or_file(spelling: str, saved: Path):
    assert checkpoints.load(saved / spelling).cfg == MODELS["linear"].cfg
    assert checkpoints.load(str(saved / spelling)).cfg == MODELS["linear"].cfg


def test_a_name_may_hold_dots(tmp_path: Path):
    checkpoints.save(MODELS["linear"], tmp_path, "kappa-1.5", METADATA)
    assert checkpoints.load(tmp_path / "kappa-1.5").cfg == MODELS["linear"].cfg


def test_the_record_says_where_the_weights_come_from(saved: Path):
    record = checkpoints.read_record(saved)
    assert record["sha256"] == hashlib.sha256((saved / "eagle.safetensors").read_bytes()).hexdigest()
    assert record["versions"]["torch"] == torch.__version__
    assert set(record["versions"]) == {"python", *provenance.LIBRARIES}
    assert set(record) == {"format", "architecture", "layout", "metadata", "versions", "git_revision", "sha256"}


def test_only_the_two_files_are_written(saved: Path):
    assert sorted(file.name for file in saved.iterdir()) == ["eagle.json", "eagle.safetensors"]
    assert checkpoints.names(saved) == ["eagle"]


def test_a_later_save_replaces_the_earlier(saved: Path):
    checkpoints.save(MODELS["float64"], saved, "eagle")
    assert checkpoints.load(saved).dtype == torch.float64
    assert checkpoints.read_metadata(saved) == {}
    assert checkpoints.names(saved) == ["eagle"]


def test_saving_leaves_the_model_as_it_was(tmp_path: Path):
    model = HookedTransformer(TransformerConfig(1, 1, 5, 5), EAGLE)
    with torch.no_grad():
        model.blocks[0].attn.W_K.data = model.blocks[0].attn.W_Q.data  # shared storage, which safetensors refuses
    model.blocks[0].attn.W_O.requires_grad_(False)
    checkpoints.save(model, tmp_path, "tied")
    assert model.blocks[0].attn.W_K.data_ptr() == model.blocks[0].attn.W_Q.data_ptr()
    again = checkpoints.load(tmp_path)
    assert torch.equal(again.blocks[0].attn.W_K, model.blocks[0].attn.W_Q)


# --- failed writes -------------------------------------------------------------------------------------------------

FAILURES = {
    "no space": ("os.fsync", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
    "no right": ("open", PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
    "no rename": ("os.replace", OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
}


def failing_after(count: int, error: BaseException, original: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(1000))

    def function(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= count:
            raise error
        return original(*args, **kwargs)

    return function


def patch(monkeypatch: pytest.MonkeyPatch, target: str, count: int, error: BaseException) -> None:
    original = {"os.fsync": os.fsync, "os.replace": os.replace, "open": open}[target]
    where = checkpoints if target == "open" else os
    monkeypatch.setattr(where, target.rpartition(".")[2], failing_after(count, error, original), raising=False)


@pytest.mark.parametrize("count", [0, 1], ids=["first file", "second file"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_write_leaves_nothing(failure: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target, error, message = FAILURES[failure]
    with monkeypatch.context() as context:
        patch(context, target, count, error)
        with pytest.raises(CheckpointError, match=f"cannot write the checkpoint .*eagle: {message}"):
            checkpoints.save(MODELS["linear"], tmp_path, "eagle", METADATA)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("target", ["os.fsync", "open"])
def test_a_failed_write_leaves_the_earlier_checkpoint(
    target: str, count: int, saved: Path, monkeypatch: pytest.MonkeyPatch
):
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    with monkeypatch.context() as context:
        patch(context, target, count, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(CheckpointError):
            checkpoints.save(MODELS["float64"], saved, "eagle", METADATA)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


@pytest.mark.parametrize("target", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("count", [0, 1])
def test_an_interrupted_write_leaves_nothing(target: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    patch(monkeypatch, target, count, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(MODELS["linear"], tmp_path, "eagle", METADATA)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_one_sentence(tmp_path: Path):
    (tmp_path / "out").write_text("something else")
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*out/eagle: "):
        checkpoints.save(MODELS["linear"], tmp_path / "out", "eagle", METADATA)


@pytest.mark.parametrize("name", ["", ".", "..", "../eagle", "a/b", ".hidden", "/eagle"])
def test_a_name_is_a_plain_file_name(name: str, tmp_path: Path):
    with pytest.raises(CheckpointError, match="a checkpoint needs a plain file name"):
        checkpoints.save(MODELS["linear"], tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), torch.zeros(2), {1, 2}, object()])
def test_metadata_that_is_no_json_is_refused(value: object, tmp_path: Path):
    with pytest.raises(CheckpointError, match="the metadata cannot be written as JSON"):
        checkpoints.save(MODELS["linear"], tmp_path, "eagle", {"value": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_model_is_not_saved(value: float, tmp_path: Path):
    model = HookedTransformer(TransformerConfig(1, 1, 5, 5), EAGLE)
    with torch.no_grad():
        model.blocks[0].attn.W_V[0, 1, 2] = value
    with pytest.raises(CheckpointError, match=r"'blocks.0.attn.W_V' holds NaN or infinite values"):
        checkpoints.save(model, tmp_path, "eagle")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_could_not_be_loaded_again_is_not_saved(tmp_path: Path):
    model = HookedTransformer(TransformerConfig(1, 1, 5, 5), EAGLE)
    model.blocks[0].attn.b_Q = torch.nn.Parameter(torch.zeros(1, 5))
    with pytest.raises(CheckpointError, match=r"could not be loaded again: .* first 'blocks.0.attn.b_Q'"):
        checkpoints.save(model, tmp_path, "eagle")
    model = HookedTransformer(TransformerConfig(2, 1, 5, 5), EAGLE)
    model.blocks[0].double()
    with pytest.raises(CheckpointError, match="could not be loaded again: the weights must share one floating dtype"):
        checkpoints.save(model, tmp_path, "eagle")
    assert list(tmp_path.iterdir()) == []


# --- corrupted checkpoints -----------------------------------------------------------------------------------------


def edit_record(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(directory: Path) -> None:
        path = directory / "eagle.json"
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))

    return spoil


def put_weights(directory: Path, data: bytes) -> None:
    """Other weights, with a record that has their hash."""
    (directory / "eagle.safetensors").write_bytes(data)
    edit_record(lambda record: record.update(sha256=hashlib.sha256(data).hexdigest()))(directory)


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def spoil(directory: Path) -> None:
        weights = safetensors.torch.load_file(directory / "eagle.safetensors")
        change(weights)
        put_weights(directory, safetensors.torch.save(weights))

    return spoil


def edit_file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(directory: Path) -> None:
        (directory / name).write_bytes(change((directory / name).read_bytes()))

    return spoil


W_Q = "blocks.0.attn.W_Q"
CORRUPTIONS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda d: (d / "eagle.safetensors").unlink(), r"holds no weights: there is no NAME\.safetensors"),
    "no record": (lambda d: (d / "eagle.json").unlink(), r"the file eagle\.json is missing"),
    "empty directory": (lambda d: [file.unlink() for file in d.iterdir()], "holds no weights"),
    "two": (
        lambda d: checkpoints.save(MODELS["linear"], d, "other"),
        "holds 2 checkpoints, give one of them: eagle, other",
    ),
    "weights truncated": (
        edit_file("eagle.safetensors", lambda b: b[:-100]),
        "SHA-256 differs.*truncated or was altered",
    ),
    "weights empty": (edit_file("eagle.safetensors", lambda b: b""), "SHA-256 differs"),
    "one bit": (edit_file("eagle.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1])), "SHA-256 differs"),
    "no safetensors": (lambda d: put_weights(d, b"not a tensor in sight"), "is not a safetensors file"),
    "cut, with hash": (
        lambda d: put_weights(d, (d / "eagle.safetensors").read_bytes()[:-8]),
        "is not a safetensors file",
    ),
    "a pickle": (lambda d: put_weights(d, b"\x80\x04N."), "is not a safetensors file"),
    "missing key": (edit_weights(lambda w: w.pop(W_Q)), f"1 of the model's weights are missing, first '{W_Q}'"),
    "extra key": (edit_weights(lambda w: w.update(more=torch.zeros(2))), "have no place in the model, first 'more'"),
    "shape": (
        edit_weights(lambda w: w.update({W_Q: torch.zeros(1, 5, 4)})),
        rf"'{W_Q}' has the shape \[1, 5, 4\], and the config asks for \[1, 5, 5\]",
    ),
    "nan": (edit_weights(lambda w: w[W_Q].fill_(torch.nan)), f"'{W_Q}' holds NaN or infinite values"),
    "inf": (edit_weights(lambda w: w[W_Q].fill_(torch.inf)), f"'{W_Q}' holds NaN or infinite values"),
    "whole numbers": (edit_weights(lambda w: w.update({W_Q: w[W_Q].long()})), "must share one floating dtype"),
    "two dtypes": (edit_weights(lambda w: w.update({W_Q: w[W_Q].double()})), "must share one floating dtype"),
    "record truncated": (edit_file("eagle.json", lambda b: b[: len(b) // 2]), r"eagle\.json is not JSON"),
    "record empty": (edit_file("eagle.json", lambda b: b""), r"eagle\.json is not JSON"),
    "record binary": (edit_file("eagle.json", lambda b: b"\xff\xfe\x00"), r"eagle\.json is not JSON"),
    "record a list": (edit_file("eagle.json", lambda b: b"[1, 2]"), "must hold a JSON object, not list"),
    "other json": (edit_file("eagle.json", lambda b: b"{}"), "has no entry 'format' of type int"),
    "format": (edit_record(lambda r: r.update(format=99)), "is of format 99, and this version reads format 1"),
    "no hash": (edit_record(lambda r: r.pop("sha256")), "has no entry 'sha256' of type str"),
    "no layout": (edit_record(lambda r: r.pop("layout")), "has no entry 'layout' of type dict"),
    "architecture a word": (
        edit_record(lambda r: r.update(architecture="GPT")),
        "has no entry 'architecture' of type dict",
    ),
    "size missing": (edit_record(lambda r: r["architecture"].pop("d_head")), "the setting 'd_head' is missing"),
    "size": (
        edit_record(lambda r: r["architecture"].update(d_head=4)),
        r"has the shape .* the config asks for \[1, 5, 4\]",
    ),
    "setting": (edit_record(lambda r: r["architecture"].update(colour=1)), "unknown setting 'colour'"),
    "kernel": (
        edit_record(lambda r: r["architecture"].update(kernel="relu")),
        "'relu' does not describe an attention kernel",
    ),
    "layer norm": (edit_record(lambda r: r["architecture"].update(normalization_type="LN")), "weights are missing"),
    "layout width": (edit_record(lambda r: r["layout"]["columns"].update(x=[0, 1])), "do not cover|not as `to_dict`"),
    "layout entry": (edit_record(lambda r: r["layout"].pop("sign")), "entries must be"),
    "layout rule": (edit_record(lambda r: r["layout"]["visibility"].update(query="some")), "unknown rule 'some'"),
    "read-out": (edit_record(lambda r: r["layout"].update(readout="z")), "read-out block 'z'"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_corrupted_checkpoint_is_one_sentence(corruption: str, saved: Path):
    spoil, message = CORRUPTIONS[corruption]
    spoil(saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoints.load(saved)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert str(saved) in str(caught.value)


MISSING = {
    "directory": "nowhere",
    "name": "other",
    "json": "other.json",
    "safetensors": "other.safetensors",
}


@pytest.mark.parametrize("path", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("function", [checkpoints.load, checkpoints.read_metadata, checkpoints.read_record])
def test_a_missing_checkpoint_is_not_found(path: str, function: Callable[[Path], object], saved: Path):
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*: the file .* is missing") as caught:
        function(saved / path)
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("which", ["eagle.json", "eagle.safetensors"])
def test_a_file_that_cannot_be_read_is_one_sentence(which: str, saved: Path, monkeypatch: pytest.MonkeyPatch):
    original = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == which:
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(CheckpointError, match=f"cannot read .*{which}: Permission denied"):
        checkpoints.load(saved)


def test_nothing_is_unpickled(saved: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("unpickled")

    for target in ("pickle.load", "pickle.loads", "torch.load"):
        monkeypatch.setattr(target, refuse)
    checkpoints.load(saved)


# --- provenance ----------------------------------------------------------------------------------------------------


def test_a_tree_without_git_has_no_revision(tmp_path: Path):
    assert provenance.git_revision(tmp_path) is None


def test_a_broken_repository_has_no_revision(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    assert provenance.git_revision(tmp_path) is None


def test_a_library_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provenance, "LIBRARIES", ("torch", "no-such-library"))
    versions = provenance.library_versions()
    assert versions["no-such-library"] is None
    assert versions["torch"] == torch.__version__
