"""What a file holds, by its first bytes and not by its name: named arrays, and where they came from."""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from models.foreign.arrays import listed
from models.foreign.npz_files import read_npz
from models.foreign.pickles import read_pickle
from models.foreign.torch_files import read_torch
from models.foreign.value import ForeignError

_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


@dataclass(frozen=True)
class Contents:
    """A file that was read: its kind ("pickle", "torch", "npz" or "safetensors"), arrays by name, and the rest.

    The names of a pickled tree are joined by "/".
    """

    path: Path
    kind: str
    arrays: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @classmethod
    def in_memory(cls, arrays: Mapping[str, Any]) -> "Contents":
        """Arrays that never were a file."""
        return cls(Path("the arrays given"), "memory", arrays)

    def provenance(self, loader: str, **options: Any) -> dict[str, Any]:
        """Where a model came from, in plain values."""
        given = {key: value for key, value in options.items() if value is not None}
        source = {"file": None, "sha256": None} if self.kind == "memory" else {"file": self.name, "sha256": self.sha256}
        return {**source, "loader": loader, "options": given}


def read_contents(path: str | Path) -> Contents:
    """Read a file of weights.

    Raises:
        ForeignError: there is no such file, it is of no known kind, or something is wrong with it.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ForeignError(f"cannot read {path}: {error.strerror or error}") from error
    kind, where, extras = _kind(data, path.name), path.name, {}
    if kind == "pickle":
        arrays = _flatten(read_pickle(data, where), where)
    elif kind == "npz":
        arrays = read_npz(data, where)
    elif kind == "safetensors":
        arrays = _read_safetensors(data, where)
    else:
        arrays, extras = read_torch(data, where)
    return Contents(path, kind, arrays, extras, hashlib.sha256(data).hexdigest())


def _kind(data: bytes, where: str) -> str:
    if data.startswith(_LEGACY_TORCH):
        raise ForeignError(f"{where} is in the format of torch before 1.6; load it there and save it again")
    if data.startswith(b"\x80"):
        return "pickle"
    if data.startswith(b"PK"):
        return _kind_of_archive(data, where)
    if data[8:10] == b'{"':
        return "safetensors"
    start = data[:8].hex(" ") or "nothing"
    raise ForeignError(
        f"{where} is no file of weights that is known here, since it starts with {start}; those are a torch "
        "checkpoint, a pickled tree of numpy arrays, an .npz archive and safetensors"
    )


def _kind_of_archive(data: bytes, where: str) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, ArithmeticError) as error:
        raise ForeignError(f"{where} is truncated or damaged: {error}") from error
    if any(name.endswith("data.pkl") for name in names):
        return "torch"
    if names and all(name.endswith(".npy") for name in names):
        return "npz"
    raise ForeignError(f"{where} is an archive of {', '.join(names[:4]) or 'nothing'}; unpack it and give one file")


def _read_safetensors(data: bytes, where: str) -> dict[str, Any]:
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ForeignError(f"{where} is no whole safetensors file: {error}") from error


def _flatten(tree: Any, where: str, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    if not isinstance(tree, dict) or depth > 8:
        raise ForeignError(f"{where} holds a {type(tree).__name__}, and a dict of arrays was expected")
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat.update(_flatten(value, where, f"{name}/", depth + 1) if isinstance(value, dict) else {name: value})
    if not flat:
        raise ForeignError(f"{where} holds no arrays{f'; its entries are {listed(tree)}' if tree else ''}")
    return flat
