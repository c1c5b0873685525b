"""Features from hooks, batch by batch: nothing but the features of one batch is kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import HookFunction, check_names, hook_name, run_with_hooks
from interp.layout import BlockLayout
from interp.probes.readings import ENTRIES, MOMENTS, Reading

Edits = Sequence[tuple[str, HookFunction]]
Features = dict[str, Float[Tensor, "batch sample feature"]]
ODD = 1e-8


def depth_hooks(model: Any) -> list[str]:
    """The residual stream before block 0 and after every block."""
    return [hook_name("resid_pre", 0), *(hook_name("resid_post", layer) for layer in range(model.cfg.n_layers))]


@dataclass(frozen=True)
class ModelSource:
    """Features of a model at its hooks; `edits` are hooks that run before them in the same forward pass."""

    model: Any
    hooks: Sequence[str]
    reading: Reading
    layout: BlockLayout
    edits: Edits = ()

    def __call__(self, tokens: Float[Tensor, "batch token d_in"]) -> Features:
        parts = [
            read_hooks(self.model, prompts, self.hooks, self._reduce, self.edits)
            for prompts in self.reading.prompts(tokens, self.layout)
        ]
        joined = {name: torch.cat([part[name] for part in parts], dim=-1) for name in self.hooks}
        for name, features in joined.items():
            if not features.isfinite().all():
                raise ValueError(
                    f"the activations at {name!r} hold NaN or infinite values on these prompts; probe before that "
                    "hook or leave those prompts out"
                )
        return joined

    def _reduce(self, name: str, activation: Tensor) -> Float[Tensor, "batch sample feature"]:
        return self.reading.features(by_rows(name, activation).double(), self.layout)


@dataclass(frozen=True)
class PromptSource:
    """Features of the prompt alone: its entries and its second moments (`Reading.of_the_prompt`)."""

    reading: Reading
    layout: BlockLayout
    hooks: Sequence[str] = (ENTRIES, MOMENTS)

    def __call__(self, tokens: Float[Tensor, "batch token d_in"]) -> Features:
        return self.reading.of_the_prompt(tokens.double(), self.layout)


def by_rows(name: str, activation: Tensor) -> Float[Tensor, "batch token width"]:
    """Activations with the row second and the rest flattened; patterns [batch, head, query, key] by their query row."""
    if name.endswith(("hook_pattern", "hook_attn_scores")):
        activation = activation.transpose(1, 2)
    if activation.ndim < 3:
        raise ValueError(
            f"the hook {name!r} gives the shape {list(activation.shape)}; probes read activations [batch, token, …]"
        )
    return activation.flatten(2)


def read_hooks(
    model: Any, tokens: Tensor, names: Sequence[str], reduce: Callable[[str, Tensor], Tensor], edits: Edits = ()
) -> dict[str, Tensor]:
    """reduce(name, activation) at each named hook of one forward pass; the activations themselves are dropped.

    Raises:
        ValueError: a hook does not exist, or did not fire.
    """
    kept: dict[str, Tensor] = {}

    def recorder(name: str) -> HookFunction:
        def record(activation: Tensor, hook: Any = None) -> None:
            kept[name] = reduce(name, activation.detach())

        return record

    check_names(model, names)
    with torch.no_grad():
        run_with_hooks(model, tokens, [*edits, *((name, recorder(name)) for name in names)])
    absent = [name for name in names if name not in kept]
    if absent:
        raise ValueError(f"the hook point {absent[0]!r} exists but did not fire in this forward pass")
    return {name: kept[name] for name in names}


def batches(rows: Tensor, size: int) -> Iterator[Tensor]:
    """Consecutive pieces of row numbers."""
    return iter(rows.split(size))


def odd_in_tokens(model: Any, tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout) -> bool:
    """Does z_i → −z_i of a context row flip that row after every block and leave the others, as in linear attention
    without biases (MATH §5)? Measured on these prompts with the first row flipped, to 1e-8."""
    names = depth_hooks(model)
    flipped = tokens.clone()
    flipped[:, 0] *= -1
    before, after = (read_hooks(model, given, names, lambda _, z: z.double()) for given in (tokens, flipped))
    for name in names:
        expected = before[name].clone()
        expected[:, 0] *= -1
        if not (after[name] - expected).norm() <= ODD * expected.norm():
            return False
    return True
