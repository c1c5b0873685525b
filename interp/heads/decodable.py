"""By which layer the quantities of a kernel solver can be read at the tokens."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.covariance import Covariance
from interp.heads.mlps import explained, quadratic
from interp.heads.points import Points
from interp.heads.ratios import to_plain
from interp.probes import ProbeReport, probe_all
from interp.probes.scores import Score

TARGETS = ("row-sums", "kernel-dual", "label")
NAMES = {"row-sums": "D", "kernel-dual": "α", "label": "y"}
NEAR = 0.05
DEGREE = 6


@dataclass(frozen=True)
class Decodable:
    """A probe of one quantity at the tokens of the context points.

    Args:
        report: R² by depth with shuffled, untrained and prompt-only controls.
        own_token: R² of polynomials of degree ≤ 6 in the point's own x and y (under a causal mask its place too): what
            a token could say without attending to any other.
    """

    report: ProbeReport
    own_token: Score

    @property
    def by_depth(self) -> int | None:
        """The first depth whose score is within 5 % of the best and above all controls, `own_token` among them."""
        best = self.report.best.score.value
        for layer in self.report.layers:
            above = layer.above_controls and layer.score.interval[0] > self.own_token.interval[1]
            if above and layer.score.value >= (1 - NEAR) * best:
                return layer.depth
        return None

    def to_dict(self) -> dict[str, Any]:
        return {**self.report.to_dict(), "own_token": to_plain(self.own_token), "by_depth": self.by_depth}


def decodable(
    model: Any, fresh: Any, points: Points, covariance: Covariance, lam: float, seed: int
) -> dict[str, Decodable]:
    """D, α and y of the true kernel and λ, read by ridge probes; nothing where a token in front holds no point."""
    if points.first:
        return {}
    found = probe_all(
        model,
        points.tokens,
        TARGETS,
        untrained=fresh,
        layout=points.layout,
        covariance=covariance,
        ridge=lam,
        seed=seed,
    )
    rows = points.kernel_rows(covariance, lam)
    values = {"row-sums": rows.row_sums, "kernel-dual": rows.dual, "label": points.y}
    own = [points.x, points.y]
    if rows.causal:
        own.append(torch.linspace(0, 1, points.x.shape[1]).to(points.x)[None, :, None].expand(points.count, -1, -1))
    features = quadratic(torch.cat(own, -1), DEGREE)
    return {name: Decodable(report, explained(features, values[name])) for name, report in found.items()}
