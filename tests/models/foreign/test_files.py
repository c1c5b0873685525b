"""Files that are damaged, lie about their size, or want to run something: each refused in a sentence, nothing run."""

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from models import foreign
from models.foreign import ForeignError, read_contents

GOOD = {"net/key": {"w": np.eye(3)}}
TEN_GB = (50_000, 25_000)  # float64


class RunsACommand:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def array_pickle(reconstruct: str, state: str) -> bytes:
    """A pickle of one array, {"net/key/w": array}, written by hand in protocol 0 text after a protocol 2 mark."""
    array = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + reconstruct + "S'b'\ntR" + state
    return b"\x80\x02" + ("(dS'net/key/w'\n" + array + "s.").encode()


FLOAT64 = "cnumpy\ndtype\n(S'f8'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"


def doubled(times: int) -> list:
    """A list of two lists, the same, of two lists, the same, …"""
    value: list = []
    for _ in range(times):
        value = [value, value]
    return value


def write(tmp_path: Path, data: bytes, name: str = "theirs") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_runs_a_command_is_refused_and_runs_nothing(protocol: int, tmp_path: Path):
    mark = tmp_path / "it-ran"
    data = pickle.dumps({"net/key": {"w": RunsACommand(f"touch {mark}")}}, protocol)
    with pytest.raises(ForeignError, match=r"nothing in it was run: its pickle asks for (posix|nt)\.system"):
        read_contents(write(tmp_path, data))
    assert not mark.exists()
    pickle.loads(data)  # the attack is real
    assert mark.exists()


def test_a_torch_file_that_runs_a_command_is_refused_and_runs_nothing(tmp_path: Path):
    mark = tmp_path / "it-ran"
    torch.save({"model_state_dict": {"w": torch.eye(2)}, "config": RunsACommand(f"touch {mark}")}, tmp_path / "a.pt")
    with pytest.raises(ForeignError, match=r"a\.pt is refused, and nothing in it was run.*system"):
        read_contents(tmp_path / "a.pt")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps({"a": print}), "asks for builtins.print"),
        (b"\x80\x04cjax._src.array\n_reconstruct_array\n)R.", "holds jax arrays, which only jax can read; store numpy"),
        (b"\x80\x04cnumpy\nndarray\n(I1000000000\ntR.", "asks for an array without its contents"),
        (b"\x80\x04cnumpy\nload\n(S'x'\ntR.", "asks for numpy.load"),
        (b"\x80\x04cnumpy\nndarray\n}S'a'\nI1\nsb.", "sets the state of a constructor"),
        (b"\x80\x04cnumpy\nndarray\n)\x81.", "its pickle uses NEWOBJ"),
        (b"\x80\x04r\xff\xff\xff\x7f.", "numbers more objects than it has bytes"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 10**10) + b"abc.", "no pickle of arrays, or it is truncated"),
        (pickle.dumps(doubled(60)), "unfolds to more entries than it has bytes"),
        (pickle.dumps(GOOD)[:-30], "no pickle of arrays, or it is truncated"),
        (pickle.dumps({"a": np.array([None])}), "holds an array of type 'O8'"),
        (pickle.dumps({"a": np.array(["x"])}), "holds an array of type 'U1'"),
        (pickle.dumps([np.eye(2)]), "holds a list, and a dict of arrays was expected"),
        (pickle.dumps({"a": {}}), "holds no arrays"),
        (pickle.dumps({"a": "text"}), "no loader takes theirs, a pickle file of a"),
    ],
)
def test_other_pickles_are_refused(data: bytes, message: str, tmp_path: Path):
    with pytest.raises(ForeignError, match=message):
        foreign.load(write(tmp_path, data))


def peak_of(refused: Any) -> int:
    """Bytes allocated at most while something is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(ForeignError, match=r"claims|without its contents"):
            refused()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_ten_gigabytes_are_refused_before_they_are_made(tmp_path: Path):
    rows, columns = TEN_GB
    claims = {
        "state.pkl": array_pickle("(I0\nt", f"(I1\n(I{rows}\nI{columns}\nt{FLOAT64}I0\nS'abc'\ntb"),
        "shape.pkl": array_pickle(f"(I{rows}\nI{columns}\nt", ""),
        "claim.npz": npz_claiming(TEN_GB),
        "claim.pt": torch_claiming(),
    }
    for name, data in claims.items():
        path = write(tmp_path, data, name)
        assert peak_of(lambda path=path: read_contents(path)) < 20e6, name


def npz_claiming(shape: tuple[int, int]) -> bytes:
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("Q.npy", header.getvalue() + b"\0" * 64)
    return file.getvalue()


def torch_claiming() -> bytes:
    """A torch checkpoint with an entry of zeros that is compressed a thousandfold."""
    plain, bomb = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.eye(2)}, plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry))
        new.writestr("archive/data/9", b"\0" * 10**6)
    return bomb.getvalue()


def test_an_npz_of_objects_or_of_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    np.savez(tmp_path / "objects.npz", Q=np.array([None, 1]))
    with pytest.raises(ForeignError, match=r"Q.npy holds objects; weights are float arrays"):
        read_contents(tmp_path / "objects.npz")
    np.savez_compressed(tmp_path / "zeros.npz", Q=np.zeros((1000, 100)))
    monkeypatch.setattr("models.foreign.npz_files.LARGEST", 10**5)
    with pytest.raises(ForeignError, match="claims 800,000 bytes of arrays; at most 100,000 are read"):
        read_contents(tmp_path / "zeros.npz")


@pytest.mark.parametrize("end", [10, 200, -30])
@pytest.mark.parametrize("kind", ["pt", "npz", "safetensors"])
def test_truncated_files(kind: str, end: int, tmp_path: Path):
    path = tmp_path / f"theirs.{kind}"
    if kind == "pt":
        torch.save({"model_state_dict": {"w": torch.eye(20)}}, path)
    elif kind == "npz":
        np.savez(path, Q=np.eye(20))
    else:
        safetensors.torch.save_file({"w": torch.eye(20)}, path)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ForeignError, match=r"truncated|no whole|no file of weights"):
        read_contents(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GIF89a" + bytes(20), "no file of weights that is known here, since it starts with 47 49 46"),
        (b"", "it starts with nothing"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.rest", "in the format of torch before 1.6"),
    ],
)
def test_a_wrong_magic(data: bytes, message: str, tmp_path: Path):
    with pytest.raises(ForeignError, match=message):
        read_contents(write(tmp_path, data))


def test_an_archive_of_something_else(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "models.zip", "w") as archive:
        archive.writestr("config.yaml", "n_head: 8")
    with pytest.raises(ForeignError, match=r"an archive of config\.yaml; unpack it"):
        read_contents(tmp_path / "models.zip")
    with pytest.raises(ForeignError, match=r"cannot read .*: No such file"):
        read_contents(tmp_path / "absent")
    with pytest.raises(ForeignError, match="unknown format 'onnx'; known: gpt2-icl, haiku"):
        foreign.load(tmp_path / "models.zip", format="onnx")


@pytest.mark.parametrize("value", [torch.ones(2, 2), [1.0], {"step": 3}])
def test_a_torch_file_without_weights(value: Any, tmp_path: Path):
    torch.save(value, tmp_path / "theirs.pt")
    with pytest.raises(ForeignError, match=r"not a state dict|holds no tensors"):
        read_contents(tmp_path / "theirs.pt")


def test_numpy_numbers_in_a_torch_file_are_read(tmp_path: Path):
    losses = [np.float64(0.5), np.float32(2), np.int64(3)]
    torch.save({"model_state_dict": {"w": torch.eye(2)}, "losses": losses}, tmp_path / "theirs.pt")
    contents = read_contents(tmp_path / "theirs.pt")
    assert contents.extras["losses"] == [0.5, 2, 3] and torch.equal(contents.arrays["w"], torch.eye(2))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2"])
@pytest.mark.parametrize("protocol", range(2, 6))
def test_arrays_come_out_of_a_pickle_as_they_went_in(protocol: int, dtype: str, order: Any, tmp_path: Path):
    array = np.asarray(np.arange(6.0).reshape(2, 3), dtype=dtype, order=order)
    tree = {"a": {"w": array, "n": np.float64(3)}, "layers": 2, "name": "é"}
    found = read_contents(write(tmp_path, pickle.dumps(tree, protocol))).arrays
    assert np.array_equal(found["a/w"], array) and found["a/w"].dtype == array.dtype
    assert (found["a/n"], found["layers"], found["name"]) == (3.0, 2, "é")
