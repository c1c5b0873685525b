"""Files that were made to hang, crash or fill the memory, or that state one thing twice: refused in a sentence."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from models import foreign
from models.foreign import ForeignError, from_matrices, read_contents

DOUBLED = b")" + b"q\x00h\x00\x86" * 64  # a tuple of two tuples, the same, …: hashed or printed, 2^64 steps
ORDERED = b"ccollections\nOrderedDict\n"


def write(tmp_path: Path, data: bytes, name: str = "theirs") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "text",
    [
        b"}" + DOUBLED + b"Ns.",
        b"}(" + DOUBLED + b"Nu.",
        b"(" + DOUBLED + b"Nd.",
        ORDERED + b"]" + DOUBLED + b"N\x86a\x85R.",
        b"}" + b")" + b"\x85" * 300_000 + b"Ns.",
    ],
)
def test_a_key_that_takes_for_ever_to_hash_is_refused_unhashed(text: bytes, tmp_path: Path):
    with pytest.raises(ForeignError, match="a tuple as the key of a dict"):
        read_contents(write(tmp_path, b"\x80\x02" + text))


@pytest.mark.parametrize(
    "text",
    [
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + DOUBLED + b"NtR.",
        b"cnumpy\ndtype\n" + DOUBLED + b"\x85R.",
        b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R(N" + DOUBLED + b"tb.",
    ],
)
def test_what_is_wrong_is_not_printed_where_printing_takes_for_ever(text: bytes, tmp_path: Path):
    with pytest.raises(ForeignError, match="the pickle"):
        read_contents(write(tmp_path, b"\x80\x02" + text))


def test_ordered_trees_are_still_read(tmp_path: Path):
    from collections import OrderedDict

    tree = OrderedDict({"net/key": OrderedDict(w=np.eye(3))})
    arrays = read_contents(write(tmp_path, pickle.dumps(tree))).arrays
    assert np.array_equal(arrays["net/key/w"], np.eye(3))


def torch_file(tmp_path: Path, text: bytes) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", text)
        archive.writestr("archive/version", "3\n")
    return write(tmp_path, buffer.getvalue())


@pytest.mark.parametrize("name", [b"cbuiltins\nbytearray\n", b"ctorch\nTensor\n", b"ctorch\nFloatTensor\n"])
def test_what_makes_memory_of_any_size_is_refused_before_it_does(name: bytes, tmp_path: Path):
    size = (10**6).to_bytes(4, "little")
    path = torch_file(tmp_path, b"\x80\x02" + name + b"J" + size + b"\x85R.")
    with pytest.raises(ForeignError, match="nothing in it was run: it asks for"):
        read_contents(path)


def test_an_archive_of_a_version_to_come_is_refused(tmp_path: Path):
    np.savez(tmp_path / "theirs.npz", Q=np.eye(3), V=np.eye(3))
    data = bytearray((tmp_path / "theirs.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 200  # the version needed to extract
    with pytest.raises(ForeignError, match="damaged: zip file version"):
        read_contents(write(tmp_path, bytes(data)))


def test_tensors_without_storage_and_views_larger_than_theirs_are_refused(tmp_path: Path):
    eye = torch.sparse_coo_tensor([[0], [0]], [1.0], (10**6, 10**6), check_invariants=True)
    for tensor, reason in (
        (torch.zeros(10**5, 10**5, device="meta"), "meta_tensor"),
        (eye, "sparse_tensor"),
        (torch.zeros(1).expand(10**5, 10**5), "claims 40,000,000,000 bytes for 'pred_head.weight'"),
    ):
        torch.save({"pred_head.weight": tensor}, tmp_path / "theirs.pt")
        with pytest.raises(ForeignError, match=reason):
            read_contents(tmp_path / "theirs.pt")


def test_weights_of_too_few_axes_are_named(tmp_path: Path):
    state = {"read_in.weight": torch.eye(3), "backbone.wpe.weight": torch.zeros(3), "read_out.weight": torch.eye(3)}
    torch.save(state, tmp_path / "gpt2.pt")
    torch.save({"allparam": torch.zeros(())}, tmp_path / "merged.pt")
    with pytest.raises(ForeignError, match=r"'backbone.wpe.weight' has the shape \[3\]"):
        foreign.load(tmp_path / "gpt2.pt", heads=1)
    with pytest.raises(ForeignError, match=r"'allparam' has the shape \[\]"):
        foreign.load(tmp_path / "merged.pt")


def test_numbers_of_layers_are_checked_before_they_are_counted_and_nothing_is_stated_twice(tmp_path: Path):
    eye = np.eye(3)
    np.savez(tmp_path / "far.npz", Q_999999999=eye, V_0=eye)
    np.savez(tmp_path / "twice.npz", Q=eye, Q_0=2 * eye, V=eye)
    with pytest.raises(ForeignError, match="numbers 1000000000 layers and has 2 matrices"):
        foreign.load(tmp_path / "far.npz")
    with pytest.raises(ForeignError, match="the matrix Q_0 twice"):
        foreign.load(tmp_path / "twice.npz")
    with pytest.raises(ForeignError, match="into 0 heads"):
        from_matrices(eye, eye, eye, eye, "x=2,y=1", heads=0)


def test_haiku_layers_may_lie_at_the_top_and_have_one_output(tmp_path: Path):
    top = {name: {"w": np.eye(3)} for name in ("key", "query", "value", "linear")}
    assert foreign.load(write(tmp_path, pickle.dumps(top))).model.cfg.n_layers == 1
    with pytest.raises(ForeignError, match="two O matrices"):
        foreign.load(write(tmp_path, pickle.dumps({**top, "output": {"w": 2 * np.eye(3)}})))


@pytest.mark.parametrize(("layout", "reason"), [("x=-3,y=7", "at least 1 column"), ("x=3,y=1,x=2", "'x' twice")])
def test_layouts_that_say_what_cannot_be_are_refused(layout: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        foreign.to_layout(layout)
