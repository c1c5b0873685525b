"""Where a model can be frozen: the scales of its norms, the hidden units of its MLPs, its attention patterns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from interp.hooks import check_names, hook_name

Part = Literal["norms", "gates", "patterns"]
PARTS: tuple[Part, ...] = get_args(Part)
SCALE = ".hook_scale"
MIXING = ("mlp.hook_pre_linear", "mlp.hook_mid")  # a gated MLP, a norm inside the MLP: no function of one unit each


@dataclass(frozen=True)
class Points:
    """Hook points by part; `pre` and `post` of the MLPs in the same order."""

    scales: tuple[str, ...] = ()
    pre: tuple[str, ...] = ()
    post: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @property
    def edited(self) -> dict[str, tuple[str, ...]]:
        """The points whose values are replaced, by part."""
        return {"norms": self.scales, "gates": self.post, "patterns": self.patterns}


def points_of(model: Any, parts: Sequence[str]) -> Points:
    """The hook points of the parts to freeze; a part that the model does not have is left out.

    Raises:
        ValueError: an unknown part, a norm or an MLP without hook points, an MLP whose units are not independent.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"linearise: unknown part {unknown[0]!r} to freeze; known: {', '.join(PARTS)}")
    pre, post = _mlps(model) if "gates" in parts else ((), ())
    patterns = tuple(hook_name("pattern", layer) for layer in range(model.cfg.n_layers)) if "patterns" in parts else ()
    check_names(model, patterns)
    return Points(_scales(model) if "norms" in parts else (), pre, post, patterns)


def _scales(model: Any) -> tuple[str, ...]:
    found = tuple(name for name in model.hook_dict if name.endswith(SCALE))
    kind = getattr(model.cfg, "normalization_type", None)
    if kind is not None and not found:
        raise ValueError(
            f"linearise: the model has {kind} layers and no hook point '…{SCALE}', so their scales cannot be frozen; "
            "ask for parts=('gates',) or give a model with TransformerLens's norms"
        )
    return found


def _mlps(model: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if getattr(model.cfg, "attn_only", False):
        return (), ()
    layers = range(model.cfg.n_layers)
    pre, post = ([f"blocks.{layer}.mlp.{point}" for layer in layers] for point in ("hook_pre", "hook_post"))
    missing = [name for name in (*pre, *post) if name not in model.hook_dict]
    if missing:
        raise ValueError(
            f"linearise: the model's MLPs have no hook point {missing[0]!r}, so their units cannot be frozen; ask for "
            "parts=('norms',) or give a model with TransformerLens's MLPs"
        )
    mixing = [
        name for name in (f"blocks.{layer}.{point}" for layer in layers for point in MIXING) if name in model.hook_dict
    ]
    if mixing:
        raise ValueError(
            f"linearise: the hook point {mixing[0]!r} says that a hidden unit of the MLP depends on more than its own "
            "input, which freezing does not cover; ask for parts=('norms', 'patterns')"
        )
    return tuple(pre), tuple(post)
