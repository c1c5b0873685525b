"""What the MLPs write: how much of it follows from quantities of the token, how much from sums over other tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.heads.points import Points
from interp.heads.ratios import held_out, r2, to_plain
from interp.hooks import capture, hook_name
from interp.probes.moments import Moments
from interp.probes.ridge import Factor, fit_ridge
from interp.probes.scores import Score

SETS = ("entries", "state", "cross", "all")
FEATURES = {
    "entries": "polynomials of degree ≤ 2 in the token's own x and y",
    "state": "polynomials of degree ≤ 2 in x, y, p = λ/(D + λ) and α of the token's own point",
    "cross": "the attention output of the same block, (Ky)_i and (Kα)_i, linearly",
    "all": "state and cross",
}
PENALTIES = tuple(10.0**power for power in range(-10, 1, 2))
WELL, ALIKE = 0.5, 0.8


@dataclass(frozen=True)
class MLPFit:
    """Held-out R² of one MLP's output at the tokens of the context points, from each of the feature sets.

    R² is pooled over the columns of the output. `shuffled`: all features, of the tokens of another prompt.
    `untrained`: the same in a network of random weights, with its own attention output.
    """

    layer: int
    scores: dict[str, Score]
    shuffled: Score
    untrained: dict[str, Score]

    @property
    def verdict(self) -> str:
        """Which kind of quantity explains it: "local", "cross", "both" (each nearly as well as all), or "neither"."""
        local, cross, everything = (self.scores[name] for name in ("state", "cross", "all"))
        if everything.value < WELL or max(local.value, cross.value) < WELL:
            return "neither"
        if min(local.value, cross.value) >= ALIKE * everything.value:
            return "both"
        return "local" if local.value > cross.value else "cross"

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            **{name: to_plain(score) for name, score in self.scores.items()},
            "shuffled": to_plain(self.shuffled),
            "untrained": {name: to_plain(score) for name, score in self.untrained.items()},
            "verdict": self.verdict,
        }


def fit_mlps(model: Any, fresh: Any, points: Points, covariance: Covariance, lam: float) -> tuple[MLPFit, ...]:
    """Every MLP of a model; none if it has none.

    Kα = y − λα holds for the exact α, so that (Kα)_i is in the span of the state too: what cross-token features alone
    explain is what the attention output and (Ky)_i add.
    """
    layers = [layer for layer, block in enumerate(model.blocks) if getattr(block, "mlp", None) is not None]
    return tuple(_fit_layer(model, fresh, points, covariance, lam, layer) for layer in layers)


def _fit_layer(model: Any, fresh: Any, points: Points, covariance: Covariance, lam: float, layer: int) -> MLPFit:
    features, output = feature_sets(model, points, covariance, lam, layer)
    others, theirs = feature_sets(fresh, points, covariance, lam, layer)
    train = held_out(points.count).start
    mixed = torch.cat([features["all"][:train].roll(1, 0), features["all"][train:].roll(1, 0)])
    return MLPFit(
        layer,
        {name: explained(features[name], output) for name in SETS},
        explained(mixed, output),
        {name: explained(others[name], theirs) for name in SETS},
    )


def feature_sets(
    model: Any, points: Points, covariance: Covariance, lam: float, layer: int
) -> tuple[dict[str, Float[Tensor, "batch n feature"]], Float[Tensor, "batch n d_model"]]:
    """The features of every set (`FEATURES`) and the MLP's output at the tokens of the points."""
    names = [hook_name("attn_out", layer), hook_name("mlp_out", layer)]
    found = capture(model, points.tokens, names)
    attended, output = (found[name][:, points.at].double() for name in names)
    rows = points.kernel_rows(covariance, lam)
    cross = torch.cat([attended, rows.smoothed_labels, rows.fit], -1)
    state = quadratic(torch.cat([points.x, points.y, rows.share, rows.dual], -1))
    entries = quadratic(torch.cat([points.x, points.y], -1))
    return {"entries": entries, "state": state, "cross": cross, "all": torch.cat([state, cross], -1)}, output


def quadratic(values: Float[Tensor, "batch n value"], degree: int = 2) -> Float[Tensor, "batch n feature"]:
    """All monomials of degree 1 to `degree` of the values, scaled to rms 1 first."""
    values = values / values.square().mean((0, 1)).sqrt().clamp(min=1e-300)
    found = [(values[..., i], i) for i in range(values.shape[-1])]
    last = list(found)
    for _ in range(degree - 1):
        last = [(one * values[..., j], j) for one, i in last for j in range(i, values.shape[-1])]
        found += last
    return torch.stack([one for one, _ in found], -1)


def explained(features: Float[Tensor, "batch n feature"], output: Float[Tensor, "batch n column"]) -> Score:
    """Held-out R² of ridge regression, pooled over the columns; the penalty by generalised cross-validation."""
    test = held_out(len(features))
    train = slice(0, test.start)
    scale = features[train].flatten(0, 1).std(0)
    x = features / torch.where(scale > 0, scale, 1)
    live = output[train].flatten(0, 1).std(0) > 0
    if not bool(live.any()):
        return Score(0.0, (0.0, 0.0))
    y = output[..., live]
    moments = Moments.of(x[train].flatten(0, 1), y[train].flatten(0, 1))
    factor = Factor.of(moments)
    fit = fit_ridge(moments, [factor.unit * penalty for penalty in PENALTIES], factor)
    predicted = fit.predict(x[test].flatten(0, 1)).view(y[test].shape)
    errors = (y[test] - predicted).square().sum((1, 2))
    return r2(errors, (y[test] - y[test].mean((0, 1))).square().sum((1, 2)))
