"""Matrices of several layers under one name: a stack, a list, or one array a layer, "Q_0", "Q_1", …"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from models.foreign.arrays import listed, to_weights
from models.foreign.value import ForeignError

Given = Any  # a numpy array or tensor [layer, …], a list of them, or one matrix


def by_layer(name: str, given: Given) -> dict[str, Any]:
    """The matrices of an argument as named arrays, "Q_0", "Q_1", …; a single matrix is one layer."""
    layers = list(given) if isinstance(given, Sequence) or given.ndim > 2 else [given]
    return {f"{name}_{index}": layer for index, layer in enumerate(layers)}


def named_series(arrays: Mapping[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """The arrays of a file as "Q_0", "Q_1", …, from "Q" [layer, …] or "Q_0", "Q.1", "W_Q_2" and the like.

    Raises:
        ForeignError: an array of another name.
    """
    found: dict[str, Any] = {}
    for key, array in arrays.items():
        match = re.fullmatch(rf"(?:W_)?({'|'.join(names)})(?:[_./](\d+))?", key)
        if match is None:
            raise ForeignError(
                f"{where} holds the array {key!r}; the names read are {', '.join(names)} and {names[0]}_0 …"
            )
        added = by_layer(match[1], array) if match[2] is None else {f"{match[1]}_{int(match[2])}": array}
        if twice := sorted(set(added) & set(found)):
            raise ForeignError(f"{where} gives the matrix {twice[0]} twice, the second time as {key!r}")
        found |= added
    return found


def layers_of(
    series: Mapping[str, Any], names: Sequence[str], where: str
) -> tuple[list[dict[str, Tensor]], tuple[str, ...]]:
    """The float64 matrices of every layer by name, and notes.

    Raises:
        ForeignError: a layer lacks one of the matrices, or an array is no float array.
    """
    weights, notes = to_weights(series, where)
    count = 1 + max(int(key.rpartition("_")[2]) for key in weights)
    if count > len(weights):
        raise ForeignError(f"{where} numbers {count} layers and has {len(weights)} matrices: {listed(weights)}")
    wanted = {f"{name}_{layer}" for name in names for layer in range(count)}
    if missing := sorted(wanted - set(weights)):
        raise ForeignError(
            f"{where} has no matrix {missing[0]!r}, and every layer needs {', '.join(names)}; it has {listed(weights)}"
        )
    return [{name: weights[f"{name}_{layer}"] for name in names} for layer in range(count)], notes
