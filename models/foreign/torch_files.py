"""torch checkpoints, read with weights_only=True and numpy's scalars as the only addition."""

import io
import pickle
import pickletools
import re
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.foreign.value import ForeignError

_READ = re.compile(
    r"collections OrderedDict|_codecs encode|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch (\w+Storage|Size|device|b?float\d+|u?int\d+|bool)|torch\.storage \w+Storage"
    r"|numpy dtype|numpy\._?core\.multiarray scalar|numpy\.dtypes \w+DType"
)
"""The names that a state dict needs. Others that torch allows make memory of any size (bytearray, Tensor, meta)."""

_FAILURES = (
    *(RuntimeError, EOFError, ValueError, LookupError, OSError, TypeError, AttributeError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error),
)
NESTED = ("model_state_dict", "state_dict", "model")


def read_torch(data: bytes, where: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state dict of a checkpoint, and what else it holds (sizes, losses, the optimiser's state).

    Raises:
        ForeignError: the file is truncated or claims more than it holds, asks for a class that is no tensor or number,
            or has no state dict.
    """
    _check_archive(data, where)
    _check_names(data, where)
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            values = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        asks = f"it asks for {named[1]}" if named else "it is no plain state dict"
        raise ForeignError(
            f"{where} is refused, and nothing in it was run: {asks}, where only tensors, numbers and text are read"
        ) from error
    except _FAILURES as error:
        raise ForeignError(f"{where} is no whole torch checkpoint: {' '.join(str(error).split())[:200]}") from error
    return _state_dict(values, where)


def _state_dict(values: Any, where: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not isinstance(values, Mapping):
        raise ForeignError(f"{where} holds a {type(values).__name__}, not a state dict")
    for name in NESTED:
        if isinstance(values.get(name), Mapping):
            return _tensors(values[name], where), {key: value for key, value in values.items() if key != name}
    return _tensors(values, where), {}


def _tensors(values: Mapping[Any, Any], where: str) -> dict[str, Tensor]:
    state = {str(name): value for name, value in values.items() if isinstance(value, Tensor)}
    if not state:
        raise ForeignError(f"{where} holds no tensors; its entries are {', '.join(map(str, list(values)[:6]))}")
    for name, W in state.items():
        size, held = W.numel() * W.element_size(), W.untyped_storage().nbytes()
        if size > held:
            raise ForeignError(f"{where} claims {size:,} bytes for {name!r}, {list(W.shape)}, and holds {held:,} of it")
    return state


def _check_names(data: bytes, where: str) -> None:
    """Refuse a checkpoint that asks for more than a state dict needs, before any of it is made."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            pickles = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
        names = [arg for text in pickles for code, arg, _ in pickletools.genops(text) if code.name == "GLOBAL"]
    except _FAILURES as error:
        raise ForeignError(f"{where} is no whole torch checkpoint: {' '.join(str(error).split())[:200]}") from error
    for name in names:
        if not _READ.fullmatch(str(name)):
            raise ForeignError(
                f"{where} is refused, and nothing in it was run: it asks for {str(name).replace(' ', '.')}, where only "
                "dense tensors, numbers and text are read"
            )


def _check_archive(data: bytes, where: str) -> None:
    """Refuse an archive that is truncated, or whose entries claim more bytes than the file has."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            claimed = sum(entry.file_size for entry in archive.infolist())
    except _FAILURES as error:
        raise ForeignError(f"{where} is truncated or damaged: {error}") from error
    if claimed > len(data):
        raise ForeignError(
            f"{where} claims {claimed:,} bytes of weights and holds {len(data):,}; torch does not compress"
        )


def _numpy_scalars() -> list[Any]:
    """What `torch.save` writes for a numpy number, under the paths of numpy 1 and 2."""
    from numpy._core.multiarray import scalar  # pyright: ignore[reportAttributeAccessIssue]

    paths = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    kinds = [type(np.dtype(code)) for code in ("f2", "f4", "f8", "i4", "i8", "b1")]
    return [*paths, np.dtype, *kinds, OrderedDict]
