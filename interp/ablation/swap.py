"""Kernel swaps: another attention kernel in chosen layers and heads, everything else of the model as it was."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.attention import OwnAttention, refuse_by_name
from interp.ablation.intervention import Hooks, Intervention, chosen
from interp.hooks import HookFunction, capture, hook_name, run_with_hooks
from interp.kernels import AttentionKernel, kernel_named

Factors = dict[int, Float[Tensor, "head"]]


def swap_kernel(
    model: Any,
    kernel: str | AttentionKernel,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    rescale: bool = False,
    *,
    reference: Tensor | None = None,
    own: OwnAttention | None = None,
) -> Intervention:
    """The model with another kernel: q and k are kept as they pass their hooks, and `hook_pattern` returns the kernel's
    pattern of them, at the model's own scale and mask.

    Args:
        kernel: a name in `interp.kernels.KERNELS`, or an AttentionKernel (its own scale is not used).
        layers, heads: where; all by default. The heads are the same in every layer.
        rescale: multiply each swapped head by a constant, so that the rms over the rows of `reference` of its output
            z_h W_O^h is what it is in the clean model. Measured layer by layer, in the swapped model's own stream.
            Without it a swap mostly changes the scale of what is written.
        reference: the prompts on which that is measured.
        own: shared between swaps of one model, so that each layer is checked once.

    Raises:
        ValueError: an unknown kernel, a layer or head out of range or none, `rescale` without `reference`, a model that
            is known to ignore pattern edits. When run: a model whose pattern is not its kernel of q and k.
    """
    name = kernel if isinstance(kernel, str) else str(kernel)
    kernel = kernel_named(kernel) if isinstance(kernel, str) else kernel
    refuse_by_name(model)
    own = OwnAttention.of(model) if own is None else own
    where = chosen("layer", layers, model.cfg.n_layers)
    which = None if heads is None else chosen("head", heads, model.cfg.n_heads)
    factors, note = None, ""
    if rescale:
        if reference is None:
            raise ValueError("swap_kernel: rescale needs reference prompts on which output norms are matched")
        factors = matched_norms(model, kernel, where, which, reference, own)
        note = "output norms matched"
    return Intervention(
        "kernel", name, where, which, lambda: swap_hooks(model, kernel, where, which, own, factors), note
    )


def swap_hooks(
    model: Any,
    kernel: AttentionKernel,
    layers: tuple[int, ...],
    heads: tuple[int, ...] | None,
    own: OwnAttention,
    factors: Factors | None = None,
) -> Hooks:
    """Three hooks a layer."""
    hooks: Hooks = []
    for layer in layers:
        kept: dict[str, Tensor] = {}
        hooks += [(hook_name(point, layer), _keep(kept, point)) for point in ("q", "k")]
        factor = None if factors is None else factors[layer]
        hooks.append((hook_name("pattern", layer), _replace(kept, kernel, layer, heads, own, factor)))
    return hooks


def matched_norms(
    model: Any,
    kernel: AttentionKernel,
    layers: tuple[int, ...],
    heads: tuple[int, ...] | None,
    reference: Tensor,
    own: OwnAttention,
) -> Factors:
    """For each swapped layer [head]: rms of z_h W_O^h in the clean model over that in the swapped one, whose earlier
    layers are swapped and matched; 1 where there is nothing to match (0 or not finite)."""
    names = {layer: hook_name("z", layer) for layer in layers}
    clean = capture(model, reference, list(names.values()))
    factors: Factors = {}

    def match(layer: int) -> HookFunction:
        wanted = head_norms(model, layer, clean[names[layer]])

        def scale(z: Tensor, hook: Any = None) -> Tensor:
            found = head_norms(model, layer, z)
            usable = found.isfinite() & (found > 0)
            factors[layer] = torch.where(usable, wanted / torch.where(usable, found, 1), 1)
            if heads is not None:
                untouched = [head for head in range(z.shape[2]) if head not in heads]
                factors[layer][untouched] = 1
            return z * factors[layer][:, None]

        return scale

    hooks = swap_hooks(model, kernel, layers, heads, own)
    with torch.no_grad():
        run_with_hooks(model, reference, [*hooks, *((names[layer], match(layer)) for layer in layers)])
    return factors


def head_norms(model: Any, layer: int, z: Float[Tensor, "batch token head d_head"]) -> Float[Tensor, "head"]:
    """rms over prompts and rows of ‖z_h W_O^h‖."""
    W_O = model.blocks[layer].attn.W_O.detach()
    gram = W_O @ W_O.mT
    return torch.einsum("bthd,hde,bthe->h", z, gram, z).div(z.shape[0] * z.shape[1]).clamp(min=0).sqrt()


def _keep(kept: dict[str, Tensor], point: str) -> HookFunction:
    def keep(activation: Tensor, hook: Any = None) -> None:
        kept[point] = activation

    return keep


def _replace(
    kept: dict[str, Tensor],
    kernel: AttentionKernel,
    layer: int,
    heads: tuple[int, ...] | None,
    own: OwnAttention,
    factor: Tensor | None,
) -> HookFunction:
    def replace(pattern: Tensor, hook: Any = None) -> Tensor:
        own.check(layer, kept["q"], kept["k"], pattern)
        new = own.pattern(kernel, layer, kept["q"], kept["k"])
        new = new if factor is None else new * factor[:, None, None]
        if heads is None:
            return new
        mixed = pattern.clone()
        mixed[:, list(heads)] = new[:, list(heads)]
        return mixed

    return replace
