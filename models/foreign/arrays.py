"""Named arrays of a foreign file: their types, values and shapes, refused or converted before a model is built."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.foreign.value import ForeignError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def to_weights(arrays: Mapping[str, Any], where: str) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The arrays as float64 tensors on the CPU, in which constants fold into weights without loss, and notes.

    Raises:
        ForeignError: no arrays, an integer or complex one, one that holds NaN or infinity.
    """
    if not arrays:
        raise ForeignError(f"{where} holds no arrays")
    tensors = {name: _tensor(name, array, where) for name, array in arrays.items()}
    narrow = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()} - {"float64"})
    notes = (f"{' and '.join(narrow)} weights, upcast to float64",) if narrow else ()
    return {name: tensor.double() for name, tensor in tensors.items()}, notes


def expect_shape(weights: Mapping[str, Tensor], name: str, *shape: int | None) -> tuple[int, ...]:
    """The shape of a weight, which must have the given sizes; None stands for any.

    Raises:
        ForeignError: the weight is absent or has another shape.
    """
    if name not in weights:
        raise ForeignError(f"the weight {name!r} is missing; the file has {listed(weights)}")
    found = tuple(weights[name].shape)
    if len(found) != len(shape) or any(want not in (None, size) for want, size in zip(shape, found, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ForeignError(f"the weight {name!r} has the shape {list(found)}, and [{wanted}] was expected")
    return found


def refuse_unused(weights: Mapping[str, Tensor], used: set[str], loader: str) -> None:
    """Raise if the file holds a weight that the loader did not use."""
    if left := sorted(set(weights) - used):
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise ForeignError(f"the weight {left[0]!r}{more} has no place in a {loader} model; the file is another kind")


def listed(names: Mapping[str, Any], most: int = 6) -> str:
    """The first names, and how many more there are."""
    known = list(names)
    return ", ".join(map(str, known[:most])) + (f" and {len(known) - most} more" if len(known) > most else "")


def _tensor(name: str, array: Any, where: str) -> Tensor:
    if isinstance(array, np.ndarray) and array.dtype.kind in "fiubc":
        native = array.astype(array.dtype.newbyteorder("="), copy=True)
        array = torch.from_numpy(native) if native.dtype.kind != "f" or native.itemsize <= 8 else native
    if not isinstance(array, Tensor) or array.dtype not in FLOATS:
        kind = str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")
        raise ForeignError(f"the entry {name!r} of {where} is of type {kind}; weights are float arrays")
    tensor = array.detach().cpu()
    if not tensor.isfinite().all():
        raise ForeignError(f"the weight {name!r} of {where} holds NaN or infinite values")
    return tensor
