"""Heads, MLPs and layers replaced: by zero, by their mean over reference prompts, or by those of another prompt."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from interp.ablation.intervention import Hooks, Intervention, chosen
from interp.hooks import HookFunction, capture, hook_name

MODES = ("zero", "mean", "resample")


@dataclass(frozen=True, eq=False)
class Reference:
    """Prompts whose activations replace others'.

    Args:
        tokens: [reference prompt, token, …], with as many rows as the prompts that are ablated.
        donors: for each ablated prompt the reference prompt whose activations it gets in mode "resample".
    """

    model: Any
    tokens: Tensor
    donors: Tensor
    _kept: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Any, tokens: Tensor, reference: Tensor | None = None, seed: int = 0) -> "Reference":
        """Donors are drawn with a seed. Without reference prompts the ablated ones serve, none for itself.

        Raises:
            ValueError: reference prompts of another shape, or a single prompt and no reference.
        """
        generator = torch.Generator().manual_seed(seed)
        if reference is None:
            if len(tokens) < 2:
                raise ValueError("ablate: one prompt has no other to take activations from; pass reference prompts")
            order = torch.randperm(len(tokens), generator=generator)
            donors = torch.empty_like(order)
            donors[order] = order.roll(1)
            return cls(model, tokens, donors.to(tokens.device))
        if not len(reference) or reference.shape[1:] != tokens.shape[1:]:
            raise ValueError(
                f"ablate: the reference prompts are {list(reference.shape)} and the prompts {list(tokens.shape)}; all "
                "but the first number must agree"
            )
        donors = torch.randint(len(reference), (len(tokens),), generator=generator)
        return cls(model, reference, donors.to(reference.device))

    def value(self, name: str, mode: str) -> Tensor | float:
        """What stands in at a hook: 0, the mean over reference prompts row by row, or the donors' activations."""
        if mode == "zero":
            return 0.0
        activation = self._activation(name)
        return activation.mean(0, keepdim=True) if mode == "mean" else activation[self.donors]

    def _activation(self, name: str) -> Tensor:
        """Those of one layer are held at a time."""
        if name not in self._kept:
            layer = name.split(".")[1]
            names = [hook_name(point, int(layer)) for point in ("z", "attn_out", "mlp_out")]
            self._kept.clear()
            self._kept.update(
                capture(self.model, self.tokens, [each for each in names if each in self.model.hook_dict])
            )
        return self._kept[name]


def ablate_head(reference: Reference, layer: int, heads: Iterable[int] | None, mode: str) -> Intervention:
    """z of some heads replaced, before W_O."""
    model = reference.model
    (layer,) = chosen("layer", [layer], model.cfg.n_layers)
    which = chosen("head", heads, model.cfg.n_heads)
    name = hook_name("z", layer)
    return Intervention(
        "head", _mode(mode), (layer,), which, lambda: [(name, _write(reference.value(name, mode), which))]
    )


def ablate_mlp(reference: Reference, layers: Iterable[int] | None, mode: str) -> Intervention:
    """The outputs of MLPs replaced.

    Raises:
        ValueError: the model has no MLPs.
    """
    where = chosen("layer", layers, reference.model.cfg.n_layers)
    names = [hook_name("mlp_out", layer) for layer in where]
    if any(name not in reference.model.hook_dict for name in names):
        raise ValueError("the model has no MLPs to ablate; it is attention-only")
    return _replaced(reference, "mlp", names, where, mode)


def ablate_layer(reference: Reference, layers: Iterable[int] | None, mode: str) -> Intervention:
    """Everything that layers write replaced; in mode "zero" they are skipped."""
    where = chosen("layer", layers, reference.model.cfg.n_layers)
    names = [hook_name(point, layer) for layer in where for point in ("attn_out", "mlp_out")]
    return _replaced(reference, "layer", [name for name in names if name in reference.model.hook_dict], where, mode)


def early_exit(model: Any, depth: int) -> Intervention:
    """The model's own read-out of the stream after `depth` layers; `Runs.predictions` knows how."""
    chosen("depth", [depth], model.cfg.n_layers + 1)
    return Intervention("exit", "early exit", (depth,))


def has_mlps(model: Any) -> bool:
    return hook_name("mlp_out", 0) in model.hook_dict


def _replaced(
    reference: Reference, kind: str, names: Sequence[str], layers: tuple[int, ...], mode: str
) -> Intervention:
    def hooks() -> Hooks:
        return [(name, _write(reference.value(name, mode), None)) for name in names]

    return Intervention(kind, _mode(mode), layers, None, hooks)


def _write(value: Tensor | float, heads: tuple[int, ...] | None) -> HookFunction:
    def write(activation: Tensor, hook: Any = None) -> Tensor:
        new = torch.zeros_like(activation) + value
        if heads is None:
            return new
        mixed = activation.clone()
        mixed[:, :, list(heads)] = new[:, :, list(heads)]
        return mixed

    return write


def _mode(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return mode
