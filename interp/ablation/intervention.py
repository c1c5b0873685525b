"""An intervention: hooks, the layers they act in, and a name."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interp.hooks import HookFunction

Hooks = list[tuple[str, HookFunction]]


@dataclass(frozen=True, eq=False)
class Intervention:
    """What is changed in a forward pass.

    Args:
        kind: "kernel", "head", "mlp", "layer", "exit" or "word".
        what: kernel name, "zero", "mean", "resample", …
        layers: where it acts; everything before the first is as in the clean pass. Of an exit, the depth alone.
        heads: which heads, or None for all (or where heads do not matter).
        hooks: makes the hooks; they may hold state, so each pass gets its own.
        note: what a reader has to know, such as factors.
    """

    kind: str
    what: str
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None = None
    hooks: Callable[[], Hooks] = field(default=list, repr=False)
    note: str = ""

    @property
    def label(self) -> str:
        """For tables: "layers 0, 2; head 1"."""
        if self.kind == "exit":
            return f"depth {self.layers[0]}"
        parts = [f"layer{'s' * (len(self.layers) > 1)} {_list(self.layers)}"]
        if self.heads is not None:
            parts.append(f"head{'s' * (len(self.heads) > 1)} {_list(self.heads)}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        heads = None if self.heads is None else list(self.heads)
        return {"kind": self.kind, "what": self.what, "layers": list(self.layers), "heads": heads, "note": self.note}


def chosen(what: str, given: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """Layers or heads as sorted indices, all of them by default.

    Raises:
        ValueError: none given, one is no index of the model, or one is given twice.
    """
    if given is None:
        return tuple(range(count))
    indices: Sequence[int] = list(given)
    if not indices:
        raise ValueError(f"the set of {what}s is empty; name at least one of 0 … {count - 1}, or leave it out for all")
    for index in indices:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
            raise ValueError(f"{what} {index!r} is out of range: the model has {what}s 0 … {count - 1}")
    if len(set(indices)) < len(indices):
        raise ValueError(f"{what} {max(indices, key=indices.count)} is named twice")
    return tuple(sorted(indices))


def _list(indices: tuple[int, ...]) -> str:
    consecutive = len(indices) > 2 and indices == tuple(range(min(indices), max(indices) + 1))
    return f"{min(indices)}–{max(indices)}" if consecutive else ", ".join(map(str, indices))
