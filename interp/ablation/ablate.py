"""ablate: interventions on a hooked model, one by one, their effects beside the clean value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from interp.ablation.attention import OwnAttention, check_pattern_edits, refuse_by_name
from interp.ablation.edits import MODES, Reference, ablate_head, ablate_layer, ablate_mlp, early_exit, has_mlps
from interp.ablation.effects import Measure, Metric, standard_metrics
from interp.ablation.intervention import Intervention, chosen
from interp.ablation.result import Ablation, Row
from interp.ablation.runs import Runs
from interp.ablation.swap import swap_kernel
from interp.hooks import Hooked, run_with_hooks
from interp.kernels import KERNELS, AttentionKernel
from interp.layout import BlockLayout


def ablate(
    model: Any,
    prompts: Any,
    interventions: Iterable[Intervention] | None = None,
    *,
    target: Tensor | None = None,
    krr: Tensor | None = None,
    metrics: Mapping[str, Metric] | None = None,
    layout: BlockLayout | None = None,
    reference: Tensor | None = None,
    seed: int = 0,
    on_row: Callable[[Row], None] | None = None,
) -> Ablation:
    """What interventions do to a model's answers, each beside the clean value with a paired interval.

    Args:
        prompts: tokens [prompt, token, …], or a value with `.tokens` (and `.target`, used unless another is given).
        interventions: by default `everything`: kernel swaps, heads, MLPs, layers and early exits.
        target, krr: answers to compare with [prompt, query, out].
        metrics: more quantities, name → function from predictions [prompt, query, out] to a number for each prompt.
        layout: says which rows are queries; by default the model's own, and without one the whole output is compared.
        reference: prompts for means, resampling and matched norms, for the default interventions.
        on_row: is given every row as soon as it is measured.

    Raises:
        ValueError: no hooked model, no interventions, prompts or clean answers that are not finite, answers of another
            shape, a metric that does not give a number for each prompt, a model that ignores edits of patterns.
    """
    tokens = tokens_of(model, prompts)
    refuse_by_name(model)
    if interventions is None:
        interventions = everything(model, tokens, reference=reference, seed=seed)
    interventions = list(interventions)
    if not interventions:
        raise ValueError("ablate: no interventions given; leave them out for all, or see interp.ablation")
    if any(item.kind == "kernel" for item in interventions):
        check_pattern_edits(model, tokens)
    runs = Runs(model, tokens, layout)
    if not runs.clean.isfinite().all():
        raise ValueError("ablate: the clean model's answers hold NaN or infinite values, so no effect can be measured")
    target = getattr(prompts, "target", None) if target is None else target
    measure = Measure({**standard_metrics(runs.clean, target, krr), **(metrics or {})}, runs.clean, seed)
    rows = []
    for item in interventions:
        rows.append(Row(item, measure.effects(runs.predictions(item))))
        if on_row is not None:
            on_row(rows[-1])
    clean = {name: values.mean().item() for name, values in measure.clean.items()}
    return Ablation(clean, tuple(rows), len(tokens), runs.reuses)


def tokens_of(model: Any, prompts: Any) -> Tensor:
    """The prompts as the model takes them, checked."""
    if not isinstance(model, Hooked):
        raise ValueError(
            f"ablate: a {type(model).__name__} is no hooked model; it needs cfg, blocks, hook_dict, run_with_hooks and "
            "run_with_cache, as in interp.hooks.Hooked"
        )
    tokens = prompts if isinstance(prompts, Tensor) else getattr(prompts, "tokens", None)
    if not isinstance(tokens, Tensor) or tokens.ndim < 2 or not len(tokens):
        raise ValueError("ablate: prompts must be tokens [prompt, token, …], at least one, or a value that has them")
    if tokens.is_floating_point() and not tokens.isfinite().all():
        raise ValueError("ablate: the prompts hold NaN or infinite values; leave those prompts out")
    return tokens


def everything(
    model: Any, tokens: Tensor, *, reference: Tensor | None = None, modes: Sequence[str] = MODES, seed: int = 0
) -> list[Intervention]:
    """Every kernel in all layers and in each, with and without matched norms; every head, MLP and layer in each mode;
    every early exit, if the model has an `unembed` to read out by."""
    source, reads = Reference.of(model, tokens, reference, seed), hasattr(model, "unembed")
    swaps = [
        swap
        for rescale in (False, True)
        for swap in kernel_swaps(model, list(KERNELS), rescale=rescale, reference=source.tokens)
    ]
    return [*swaps, *head_ablations(source, modes), *block_ablations(source, modes), *(exits(model) if reads else [])]


def kernel_swaps(
    model: Any,
    kernels: Sequence[str | AttentionKernel],
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    *,
    rescale: bool = False,
    reference: Tensor | None = None,
) -> list[Intervention]:
    """Every kernel in all the given layers at once, and in each of them alone."""
    if not kernels:
        raise ValueError(f"the set of kernels is empty; name at least one of {', '.join(KERNELS)}")
    where, own = chosen("layer", layers, model.cfg.n_layers), OwnAttention.of(model)
    heads = None if heads is None else chosen("head", heads, model.cfg.n_heads)
    sets: list[tuple[int, ...]] = [where, *((layer,) for layer in where if len(where) > 1)]
    return [
        swap_kernel(model, kernel, each, heads, rescale, reference=reference, own=own)
        for kernel in kernels
        for each in sets
    ]


def head_ablations(source: Reference, modes: Sequence[str] = MODES) -> list[Intervention]:
    """Every head of every layer, in each mode."""
    cfg = source.model.cfg
    places = [(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
    return [ablate_head(source, layer, [head], mode) for layer, head in places for mode in modes]


def block_ablations(source: Reference, modes: Sequence[str] = MODES) -> list[Intervention]:
    """Every MLP, if there are any, and every layer, in each mode."""
    layers = range(source.model.cfg.n_layers)
    mlps = [ablate_mlp(source, [layer], mode) for layer in layers for mode in modes] if has_mlps(source.model) else []
    return [*mlps, *(ablate_layer(source, [layer], mode) for layer in layers for mode in modes)]


def exits(model: Any) -> list[Intervention]:
    """The read-out at every depth short of the last."""
    return [early_exit(model, depth) for depth in range(model.cfg.n_layers)]


def swapped(
    model: Any,
    tokens: Tensor,
    kernel: str | AttentionKernel,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    rescale: bool = False,
    reference: Tensor | None = None,
) -> Tensor:
    """The model's output with another kernel: `swap_kernel`, after checking that the model takes edits of patterns."""
    tokens = tokens_of(model, tokens)
    check_pattern_edits(model, tokens)
    swap = swap_kernel(model, kernel, layers, heads, rescale, reference=tokens if reference is None else reference)
    with torch.no_grad():
        return run_with_hooks(model, tokens, swap.hooks())
