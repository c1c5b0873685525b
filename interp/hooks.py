"""Names of hook points, the protocol of a hooked model, and running one without silent misses.

All hook strings of the toolkit live here. TransformerLens runs the clean model when a name or a filter matches
nothing; `capture` and `run_with_hooks` raise instead, and list the names that exist.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
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
    check_entry(model, tokens)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names_filter=list(names))
    absent = [name for name in names if name not in cache]
    if absent:
        raise ValueError(f"the hook point {absent[0]!r} exists but did not fire in this forward pass")
    return {name: cache[name] for name in names}


def run_with_hooks(model: Hooked, tokens: Tensor, hooks: Sequence[tuple[str, HookFunction]]) -> Tensor:
    """The model's output with the given hooks, each of which must exist."""
    check_names(model, (name for name, _ in hooks))
    check_entry(model, tokens)
    return model.run_with_hooks(tokens, fwd_hooks=list(hooks))


def is_transformer_lens(model: Any) -> bool:
    """Is the model of one of TransformerLens's own classes."""
    return type(model).__module__.startswith("transformer_lens")


def reads_vocabulary(model: Any) -> bool:
    """Does a model of TransformerLens take numbers of a vocabulary; not where its `embed` was replaced."""
    embed = getattr(model, "embed", None)
    return is_transformer_lens(model) and is_transformer_lens(embed)


def check_entry(model: Any, tokens: Any) -> None:
    """Refuse real-valued prompts for a model that reads a vocabulary (a bridge would add positions without a word)."""
    if isinstance(tokens, Tensor) and tokens.is_floating_point() and reads_vocabulary(model):
        raise ValueError(
            f"this {type(model).__name__} reads numbers of a vocabulary of {model.cfg.d_vocab}, and the prompts are "
            "real-valued; if their rows are its residual stream, give interp.protocol.Continuous(model, layout)"
        )


def read_out(model: Any, z: Tensor) -> Tensor:
    """The model's own read-out of a residual stream: unembed(ln_final(z)), without the norm where there is none."""
    if not hasattr(model, "unembed"):
        raise ValueError(
            f"the {type(model).__name__} has no unembed, by which its residual stream would be read out; give it one "
            "(and ln_final, if it has a last norm)"
        )
    return model.unembed(model.ln_final(z) if hasattr(model, "ln_final") else z)


def float64_copy(model: Any) -> Any:
    """A copy in float64; TransformerLens's models cast patterns to `cfg.dtype`, which only their own `to` changes."""
    copy = deepcopy(model)
    return copy.to(torch.float64, print_details=False) if is_transformer_lens(copy) else copy.double()


def in_float64(model: Any) -> Any:
    """The model in float64: itself if it is, else a copy."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return model if dtypes <= {torch.float64} else float64_copy(model)
