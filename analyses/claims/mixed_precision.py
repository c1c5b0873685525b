"""A trained kernel solver forgives weights rounded to bf16, and what each layer suffers alone tells which to keep
precise."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.cached_case import CachedCase, worse_seed
from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from analyses.claims.process_case import ratio, task_of
from models import zoo
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

MODEL = "gp-softmax"
PROMPTS, FULL, QUERIES = 256, 4096, 16
FORMATS = {"bf16": None, "int8": 8, "int4": 4}
"""Bits of a symmetric integer with one scale an output channel; None is a cast."""
ROUGH, FINE = "int4", "int8"

Errors = Float[Tensor, " prompt"]


@dataclass(frozen=True, eq=False)
class Rounded:
    """Squared errors of each prompt under roundings of one model.

    Args:
        exact, bf16: of the model itself, and with all parameters in bf16.
        alone: by format, the mean excess with one layer rounded, on prompts of their own.
        rough: by the layers that are int4 where all others are int8.
        suggested: of these, the layers that suffer int4 least alone.
    """

    exact: Errors
    bf16: Errors
    alone: Mapping[str, Sequence[float]]
    rough: Mapping[tuple[int, ...], Errors]
    suggested: tuple[int, ...]

    def excess(self, layers: tuple[int, ...]) -> float:
        return (self.rough[layers] - self.exact).mean().item()

    def order(self, note: str, seed: int) -> Measurement:
        """Excess of the suggested layers over the median of all choices of as many, prompts resampled together."""
        excess = torch.stack([errors - self.exact for errors in self.rough.values()])
        chosen = list(self.rough).index(self.suggested)

        def statistic(at: Tensor) -> Tensor:
            means = torch.stack([one[at].mean(-1) for one in excess])
            return means[chosen] / means.quantile(0.5, dim=0)

        rank = sum(self.excess(layers) < self.excess(self.suggested) for layers in self.rough) + 1
        text = f"int4 in layers {_listed(self.suggested)}, rank {rank} of all {len(self.rough)} choices; {note}"
        return bootstrap(statistic, torch.arange(len(self.exact)), text, seed)


def measure(
    settings: Settings,
    models: Mapping[int, HookedTransformer] | None = None,
    family: GaussianProcess | None = None,
    prompts: int | None = None,
) -> Findings:
    models, family = models or zoo.seeds(MODEL), family or task_of(MODEL)
    count = prompts or (FULL if settings.full else PROMPTS)
    found = {seed: study(model, family, count, settings) for seed, model in models.items()}
    note = (
        f"{count} prompts of {QUERIES} queries, seed {settings.seed}; weights rounded, everything computed in float64"
    )
    order = (
        f"sensitivity: squared error gained with the six matrices of one block in int4, on {count} other prompts; the "
        "half that gains least stays int4, the other half int8 (symmetric, one scale an output channel; read-in, "
        f"read-out, biases and norms exact), over the median of every choice of as many layers; {note}"
    )
    measurements = {
        "bf16": worse_seed({seed: ratio(by.bf16, by.exact, note, settings) for seed, by in found.items()}),
        "order": worse_seed({seed: by.order(order, settings.seed) for seed, by in found.items()}),
    }
    return Findings(
        measurements, _table(found), {str(seed): _details(by) for seed, by in found.items()}, partial(_draw, found)
    )


def study(model: HookedTransformer, family: GaussianProcess, count: int, settings: Settings) -> Rounded:
    """The errors of one model under every rounding."""
    trial, fresh = (CachedCase.fresh(replace(family, n_query=QUERIES), count, settings, number) for number in range(2))

    def errors(case: CachedCase, rounded: HookedTransformer) -> Errors:
        return case.errors(case.answers(rounded)).cpu()

    layers, model = range(model.cfg.n_layers), model.double()
    clean = errors(trial, model).mean()
    alone = {
        name: [(errors(trial, round_layers(model, {i: name})).mean() - clean).item() for i in layers]
        for name in FORMATS
    }
    suggested = tuple(sorted(sorted(layers, key=lambda i: alone[ROUGH][i])[: len(layers) // 2]))
    rough = {
        chosen: errors(fresh, round_layers(model, {i: ROUGH if i in chosen else FINE for i in layers}))
        for chosen in combinations(layers, len(layers) // 2)
    }
    return Rounded(errors(fresh, model), errors(fresh, to_bf16(model)), alone, rough, suggested)


def round_layers(model: HookedTransformer, formats: Mapping[int, str]) -> HookedTransformer:
    """A copy whose matrices in the given blocks are rounded to a format."""
    rounded = copy.deepcopy(model)
    for layer, name in formats.items():
        for parameter, weight in rounded.blocks[layer].named_parameters():
            if parameter.rpartition(".")[2].startswith("W_"):
                weight.data = round_to(weight.data, name)
    return rounded


def to_bf16(model: HookedTransformer) -> HookedTransformer:
    """A copy with every parameter rounded to bf16, and computed with in the precision of the model."""
    return copy.deepcopy(model).bfloat16().to(model.dtype)


def round_to(weight: Float[Tensor, "*head row channel"], name: str) -> Float[Tensor, "*head row channel"]:
    """bf16 by a cast; an integer of b bits as s·round(w/s), s = max |w| over a channel's inputs / (2^(b−1) − 1)."""
    bits = FORMATS[name]
    if bits is None:
        return weight.bfloat16().to(weight)
    scale = weight.abs().amax(-2, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale > 0, (weight / scale).round() * scale, weight)


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))


def _details(found: Rounded) -> dict[str, Any]:
    return {
        "squared_error": found.exact.mean().item(),
        "bf16": found.bf16.mean().item(),
        "excess_of_one_layer": {name: list(values) for name, values in found.alone.items()},
        "excess_by_int4_layers": {_listed(layers): found.excess(layers) for layers in found.rough},
        "suggested": list(found.suggested),
    }


def _table(found: Mapping[int, Rounded]) -> str:
    lines = []
    for seed, by in found.items():
        clean = by.exact.mean().item()
        lines += [
            f"{MODEL}, seed {seed}: squared error {clean:.4g}; gained with one layer rounded, as a share of it",
            f"{'layer':>6}" + "".join(f"{name:>11}" for name in by.alone),
        ]
        lines += [
            f"{i:>6}" + "".join(f"{gained / clean:>11.2e}" for gained in row)
            for i, row in enumerate(zip(*by.alone.values(), strict=True))
        ]
        ranked = sorted(by.rough, key=by.excess)
        lines += [f"gained with half of the layers int4, half int8 (all {len(ranked)} choices)"]
        for what, layers in (("suggested", by.suggested), ("best", ranked[0]), ("worst", ranked[-1])):
            lines += [f"  {what:<10} int4 in {_listed(layers):<10}{by.excess(layers) / clean:>11.2e}"]
        median = torch.tensor([by.excess(layers) for layers in ranked]).quantile(0.5).item()
        lines += [f"  {'median':<29}{median / clean:>11.2e}", ""]
    return "\n".join(lines).rstrip()


def _draw(found: Mapping[int, Rounded], path: Path) -> None:
    def shares(by: Rounded) -> list[float]:
        return [gained / by.exact.mean().item() for gained in by.alone[ROUGH]]

    curves = {f"seed {seed}": (range(len(by.alone[ROUGH])), shares(by)) for seed, by in found.items()}
    draw_curves(
        curves,
        path,
        title=f"What each layer suffers alone from weights in {ROUGH}",
        x="layer",
        y="squared error gained, over the model's",
        log_y=False,
    )
