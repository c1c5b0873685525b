"""The weights fall into a few clusters: with two or three values a matrix the model answers as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from sklearn.cluster import KMeans
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from interp import unroll
from interp.unrolling import UpdateRule
from interp.unrolling.rule import GroupRule
from models import zoo

MODELS, PROMPTS = ("eagle", "eagle-d10"), 1024
CLUSTERS = {"three": (3, 3), "two": (2, 3)}
"""Clusters of the entries of Q and of V."""
SWEEP = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Quantised:
    """A model with its weights in clusters: squared error of each prompt, and of the model itself."""

    errors: Float[Tensor, " prompt"]
    whole: Float[Tensor, " prompt"]

    def ratio(self, note: str) -> Measurement:
        """Median squared error over the model's, as a ratio of errors, prompts resampled together."""

        def ratio(prompts: Tensor) -> Tensor:
            return (self.errors[prompts].median(-1).values / self.whole[prompts].median(-1).values).sqrt()

        return bootstrap(ratio, torch.arange(len(self.errors)), note)


def measure(settings: Settings, prompts: int = PROMPTS) -> Findings:
    counts = {**CLUSTERS, **{str(k): (k, k) for k in SWEEP}}
    ratios: dict[str, dict[str, Measurement]] = {
        model: {name: _quantise(model, *pair, prompts, settings.seed) for name, pair in counts.items()}
        for model in MODELS
    }
    measurements = {name: max((ratios[model][name] for model in MODELS), key=lambda m: m.value) for name in CLUSTERS}
    values = {model: {name: found.value for name, found in by.items()} for model, by in ratios.items()}

    def draw(path: Path) -> None:
        _draw(values, path)

    return Findings(measurements, _table(values), {"error_ratios": values}, draw)


def _quantise(name: str, q_clusters: int, v_clusters: int, prompts: int, seed: int) -> Measurement:
    sample = zoo.prompts(name, prompts, seed=seed)
    rule = unroll(zoo.load(name))
    errors = [
        (found.predict(sample.tokens, "exact") - sample.target).square().mean((1, 2))
        for found in (clustered(rule, q_clusters, v_clusters), rule)
    ]
    what = "k-means on the entries of W_QW_Kᵀ and of the live columns of W_VW_O"
    note = f"{name}: {prompts} prompts, seed {seed}, medians; {what}"
    return Quantised(*errors).ratio(note)


def clustered(rule: UpdateRule, q_clusters: int, v_clusters: int) -> UpdateRule:
    """The rule whose canonical heads have so many distinct entries; columns that nothing reads are left alone."""

    def cut(item: GroupRule) -> GroupRule:
        live = [
            i for name, at in rule.layout.slices.items() if name not in item.unread for i in range(at.start, at.stop)
        ]
        V = item.group.V.clone()
        V[..., live] = torch.stack([to_clusters(v, v_clusters) for v in V[..., live]])
        Q = torch.stack([to_clusters(q, q_clusters) for q in item.group.Q])
        return replace(item, group=replace(item.group, Q=Q, V=V))

    layers = (replace(layer, groups=tuple(map(cut, layer.groups))) for layer in rule.layers)
    return replace(rule, layers=tuple(layers))


def to_clusters(matrix: Float[Tensor, "row column"], clusters: int) -> Float[Tensor, "row column"]:
    """Every entry replaced by the centre of its cluster: k-means in one dimension."""
    entries = matrix.reshape(-1, 1).numpy()
    if len(np.unique(entries)) <= clusters:
        return matrix
    found = KMeans(n_clusters=clusters, random_state=0).fit(entries)
    return torch.as_tensor(found.cluster_centers_[found.labels_, 0]).reshape(matrix.shape).to(matrix)


def _table(values: Mapping[str, Mapping[str, float]]) -> str:
    columns = list(next(iter(values.values())))
    lines = [
        "error over that of the model, by clusters (Q, V; a number is both; two: 2 and 3)",
        f"{'':<10}" + "".join(f"{c:>10}" for c in columns),
    ]
    lines += [f"{model:<10}" + "".join(f"{by[c]:>10.3g}" for c in columns) for model, by in values.items()]
    return "\n".join(lines)


def _draw(values: Mapping[str, Mapping[str, float]], path: Path) -> None:
    curves: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        model: (SWEEP, [by[str(k)] for k in SWEEP]) for model, by in values.items()
    }
    draw_curves(
        curves,
        path,
        title="Weights in clusters",
        x="clusters of each matrix",
        y="error over that of the model",
        marks={"1.1": 1.1},
    )
