"""The row-stochastic operator of a head against D⁻¹K of a covariance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from interp.covariance import Covariance
from interp.heads.points import Route
from interp.heads.ratios import distance, held_out, to_plain
from interp.kernels import divide_by_total
from interp.probes.scores import Score

FACTOR = 16  # the search for a lengthscale goes from ℓ/16 to 16 ℓ
GRID = 17
NAMES = ("rbf", "laplace")


@dataclass(frozen=True)
class Nearest:
    """The lengthscale between `least` and `most` at which a kernel's D⁻¹K is nearest on training prompts, and the
    distance on held-out ones."""

    lengthscale: float
    score: Score
    least: float
    most: float

    def __str__(self) -> str:
        if self.lengthscale > 0.98 * self.most:
            return f"≥{self.most:.1f}"
        return f"≤{self.least:.3f}" if self.lengthscale < 1.02 * self.least else f"{self.lengthscale:.3f}"


@dataclass(frozen=True)
class OperatorFit:
    """‖S − D⁻¹K‖ / ‖D⁻¹K‖ on held-out prompts, S the pattern over the points, its rows divided by their sums.

    Args:
        mass: mean share of a row's weight on the points of the route (1 for all; NaN where weights are no shares).
        true, uniform: S and equal weights against the true kernel.
        best: S against an rbf and a laplace kernel of the best lengthscale each (`Nearest`); not for controls.
    """

    mass: float
    true: Score
    uniform: Score
    best: dict[str, Nearest]

    def to_dict(self) -> dict[str, Any]:
        nearest = {name: {"lengthscale": n.lengthscale, "distance": to_plain(n.score)} for name, n in self.best.items()}
        return {"mass": self.mass, "true": to_plain(self.true), "uniform": to_plain(self.uniform), "nearest": nearest}


def fit_operator(
    route: Route,
    pattern: Float[Tensor, "batch row key"],
    visible: Bool[Tensor, "row key"],
    covariance: Covariance,
    stochastic: bool,
    kernels: Sequence[str] = NAMES,
) -> OperatorFit:
    """The operator of one head on one route.

    Where the pattern is not `stochastic` (no softmax) its rows are not divided by their sums, which can be 0; it is
    multiplied by the best number instead.
    """
    shown = torch.where(visible, pattern, 0)
    S = divide_by_total(shown, shown.sum(-1, keepdim=True)) if stochastic else shown
    gap = _Gap(route, S, visible, stochastic)
    equal = visible.double() / visible.sum(-1, keepdim=True).clamp(min=1)
    mass = shown.sum(-1)[:, visible.any(-1)].mean().item() if stochastic else math.nan
    return OperatorFit(
        mass,
        gap.held_out(covariance),
        _Gap(route, equal.expand_as(S), visible, True).held_out(covariance),
        {name: gap.nearest(replace(covariance, name=name)) for name in kernels},
    )


@dataclass(frozen=True, eq=False)
class _Gap:
    """How far operators are from D⁻¹K of a covariance."""

    route: Route
    S: Float[Tensor, "batch row key"]
    visible: Bool[Tensor, "row key"]
    stochastic: bool

    @property
    def train(self) -> slice:
        return slice(0, held_out(len(self.S)).start)

    def held_out(self, covariance: Covariance) -> Score:
        return distance(*self._of(held_out(len(self.S)), covariance))

    def nearest(self, covariance: Covariance) -> Nearest:
        """The best lengthscale of a kernel."""

        def loss(logarithm: float) -> float:
            above, below = self._of(self.train, replace(covariance, lengthscale=math.exp(logarithm)))
            return (above.sum() / below.sum()).item()

        least, most = covariance.lengthscale / FACTOR, covariance.lengthscale * FACTOR
        best = math.exp(_minimum(loss, math.log(least), math.log(most)))
        return Nearest(best, self.held_out(replace(covariance, lengthscale=best)), least, most)

    def _of(self, which: slice, covariance: Covariance) -> tuple[Tensor, Tensor]:
        """‖S − D⁻¹K‖² and ‖D⁻¹K‖² of some prompts."""
        T, S = self._kernel(which, covariance), self.S[which]
        if not self.stochastic:
            train = self.S[self.train]
            S = S * ((train * self._kernel(self.train, covariance)).sum() / train.square().sum().clamp(min=1e-300))
        return (S - T).square().sum((1, 2)), T.square().sum((1, 2))

    def _kernel(self, which: slice, covariance: Covariance) -> Float[Tensor, "batch row key"]:
        K = torch.where(self.visible, covariance(self.route.row_x[which], self.route.key_x[which]), 0)
        return divide_by_total(K, K.sum(-1, keepdim=True))


def _minimum(loss: Callable[[float], float], least: float, most: float) -> float:
    """The lowest point of a grid, refined between its neighbours."""
    grid = torch.linspace(least, most, GRID).tolist()
    lowest = min(range(GRID), key=lambda i: loss(grid[i]))
    bounds = grid[max(lowest - 1, 0)], grid[min(lowest + 1, GRID - 1)]
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7, "maxiter": 25})
    return float(found.x)
