"""Erasing what a linear probe reads: a projection through a hook, for tests of whether a probe's score can fall."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import HookFunction, in_float64
from interp.layout import BlockLayout
from interp.probes.fitters import RidgeFitter
from interp.probes.probe import Settings, check_hooks, group_by_reading
from interp.probes.stream import ModelSource, batches, by_rows, read_hooks
from interp.probes.study import Study
from interp.probes.targets import alternates, check_target
from interp.unrolling.moments import check_prompts

RANK_RTOL = 1e-10
BY_SINGLE_ROWS = ("token", "pooled", "rows", "queries")


@dataclass(frozen=True)
class Eraser:
    """z → z − (z − mean) U Uᵀ at a hook: the directions U [width, rank] are set to the mean, in every row."""

    hook: str
    directions: Float[Tensor, "width rank"]
    mean: Float[Tensor, "width"]

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    @property
    def edit(self) -> tuple[str, HookFunction]:
        """The hook to give `probe(…, edits=[eraser.edit])` or a model's `run_with_hooks`."""

        def erase(activation: Tensor, hook: Any = None) -> Tensor:
            flat = activation.reshape(*activation.shape[:2], -1)
            U = self.directions.to(flat)
            return (flat - ((flat - self.mean.to(flat)) @ U) @ U.T).view(activation.shape)

        return self.hook, erase


def eraser(
    model: Any,
    prompts: Any,
    target: str,
    hook: str,
    *,
    layout: BlockLayout | None = None,
    **settings: Any,
) -> Eraser:
    """The directions at a hook along which a target can be read linearly: the column space of the cross-covariance.

    U spans Σ (f − f̄)(y − ȳ)ᵀ over the prompts given, f the feature of the reading "token", "pooled", "rows" or
    "queries" (there U covers every query row). With U
    projected out that covariance is 0, and then no linear probe beats the constant on them (Belrose et al. 2023,
    "LEACE: perfect linear concept erasure in closed form"; theirs is the projection of least change, this one is
    orthogonal). Directions that merely correlate with y are covered, which a projection along the probe's own
    coefficients would leave.

    Args:
        prompts: better those of the probe or of its distribution; all of them are used.
        settings: reading (a name or a `Reading` of these kinds), ridge, batch.

    Raises:
        ValueError: as `probe`; another reading than those; a target along as many directions
            as the hook is wide.
    """
    chosen = Settings.of(settings)
    layout = check_target(
        target,
        layout or getattr(model, "layout", None),
        getattr(prompts, "tokens", prompts),
        chosen.ridge,
        chosen.covariance,
    )
    alternating = alternates(getattr(prompts, "tokens", prompts), layout)
    (reading,) = group_by_reading([target], chosen.reading, False, alternating)
    if reading.kind not in BY_SINGLE_ROWS:
        raise ValueError(f"eraser: the reading must be one of {', '.join(BY_SINGLE_ROWS)}, got {reading.kind!r}")
    model, tokens = in_float64(model), check_prompts(prompts, layout)
    check_hooks(model, [hook])
    reading.check(target, layout, tokens.shape[1], alternating)
    numbers = chosen.ridge, chosen.batch, chosen.seed, chosen.covariance
    moments = _moments(Study(tokens, layout, reading, [target], 0, *numbers), model, hook)
    width = _width(model, tokens[:1], hook)
    cross = (moments.cross / moments.spread.sqrt()).view(-1, width, moments.cross.shape[1])
    U, sizes, _ = torch.linalg.svd(cross.transpose(0, 1).flatten(1), full_matrices=False)
    directions = U[:, sizes > RANK_RTOL * sizes[0]]
    if directions.shape[1] == len(directions):
        raise ValueError(
            f"eraser: the target {target!r} is read along all {len(directions)} directions at {hook!r}, and nothing "
            "would be left; take a target of fewer columns"
        )
    return Eraser(hook, directions, moments.x_mean.view(-1, width).mean(0))


def _width(model: Any, tokens: Float[Tensor, "one token d_in"], hook: str) -> int:
    """How many features one row has at a hook."""
    return read_hooks(model, tokens, [hook], by_rows)[hook].shape[-1]


def _moments(study: Study, model: Any, hook: str) -> Any:
    fitter, source = RidgeFitter([1.0], True), ModelSource(model, [hook], study.reading, study.layout)
    for rows in batches(torch.arange(study.train), study.batch):
        fitter.update(
            source(study.tokens[rows.to(study.tokens.device)])[hook].flatten(0, 1), study.columns(rows, False)
        )
    return fitter.moments
