"""Names of hook points, the protocol of a hooked model, and running one without silent misses.

All hook strings of the toolkit live here. TransformerLens runs the clean model when a name or a filter matches
nothing; `capture` and `run_with_hooks` raise instead, and list the names that exist.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

ATTENTION_POINTS = ("q", "k", "v", "pattern", "z")
BLOCK_POINTS = ("resid_pre", "resid_post", "attn_out", "mlp_out")

HookFunction = Callable[..., Tensor | None]


@runtime_checkable
class Hooked(Protocol):
    """What the analyses need of a model: TransformerLens's names for weights, config and hooked runs."""

    cfg: Any
    blocks: Any
    hook_dict: Any

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any: ...

    def run_with_cache(self, *args: Any, **kwargs: Any) -> Any: ...


def hook_name(point: str, layer: int) -> str:
    """The full name of a hook point: `hook_name("pattern", 2)` is "blocks.2.attn.hook_pattern"."""
    if point in ATTENTION_POINTS:
        return f"blocks.{layer}.attn.hook_{point}"
    if point in BLOCK_POINTS:
        return f"blocks.{layer}.hook_{point}"
    raise ValueError(f"unknown hook point {point!r}; known points: {', '.join(ATTENTION_POINTS + BLOCK_POINTS)}")


def check_names(model: Hooked, names: Iterable[str]) -> None:
    """Raise if one of the names is no hook point of the model."""
    missing = [name for name in names if name not in model.hook_dict]
    if missing:
        raise ValueError(f"the model has no hook point {missing[0]!r}; it has: {', '.join(model.hook_dict)}")


def capture(model: Hooked, tokens: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """The activations at the named hook points, in one forward pass; never write into them (they share storage)."""
    check_names(model, names)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter=list(names))
    absent = [name for name in names if name not in cache]
    if absent:
        raise ValueError(f"the hook point {absent[0]!r} exists but did not fire in this forward pass")
    return {name: cache[name] for name in names}


def run_with_hooks(model: Hooked, tokens: Tensor, hooks: Sequence[tuple[str, HookFunction]]) -> Tensor:
    """The model's output with the given hooks, each of which must exist."""
    check_names(model, (name for name, _ in hooks))
    return model.run_with_hooks(tokens, fwd_hooks=list(hooks))
