"""Judging a measurement: the nearest solver, its margin over seeds, ties, and whether it is near at all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from scipy import stats
from torch import Tensor

from interp.comparison.measure import Measured
from interp.comparison.metrics import A_LIN, METRICS, A, Assigned, C

NONE = "none"
CONFIDENCE = 0.95
ROUNDING = 1e-6


@dataclass(frozen=True)
class Rules:
    """When a solver is named; all are shares.

    Args:
        share: the metric must be at most this share of that of no iteration (all layers at step 0), and the last
            layer's distance to KRR at most this share of rms(KRR).
        random: the same two must be at most this share of a random network's (C's metric apart: a random network's
            errors point where those of step 0 do, so it is near 0 for nothing).
        tie: a rival whose margin is below this share of the best distance is tied, however sure the margin is; and a
            network whose A-lin is above its A by more than this share has no fixed pace, so that A-lin names nothing.
    """

    share: float = 0.5
    random: float = 0.5
    tie: float = 0.1

    def __post_init__(self) -> None:
        for name in ("share", "random", "tie"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"compare: {name}={getattr(self, name)} is a share and must lie in [0, 1]")


@dataclass(frozen=True)
class Margin:
    """How much nearer the best solver is than a rival: mean over groups of prompts, its 95 % t-interval, deviation."""

    mean: float
    interval: tuple[float, float]
    deviation: float

    @classmethod
    def of(cls, gaps: Float[Tensor, "group"]) -> "Margin":
        mean, deviation = gaps.mean().item(), gaps.std().item()
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gaps) - 1)) * deviation / math.sqrt(len(gaps))
        return cls(mean, (mean - half, mean + half), deviation)


@dataclass(frozen=True)
class Floor:
    """The best that random networks reach: by metric, and the distance to KRR of their last layer."""

    metrics: Mapping[str, float]
    last: float

    @classmethod
    def of(cls, found: list[Measured]) -> "Floor":
        """The least over networks and solvers."""
        best = {
            name: min(float(values.mean()) for each in found for values in each.values(name).values())
            for name in METRICS
        }
        return cls(best, min(float(each.to_krr[:, -1].mean()) for each in found))


@dataclass(frozen=True)
class Judged:
    """One metric of one read-out.

    Args:
        distance, deviation: by solver, the metric as a distance, mean over groups, and its deviation between them.
        assigned: by solver, the step of each layer.
        still: the metric of no iteration.          floor: the best of random networks, or None without them.
        best: the nearest solver.                   margins: of every rival.
        ties: rivals that are not told from the best.
        refused: why no solver is named; empty where one is.
    """

    metric: str
    distance: Mapping[str, float]
    deviation: Mapping[str, float]
    assigned: Mapping[str, Assigned]
    still: float
    floor: float | None
    best: str
    margins: Mapping[str, Margin]
    ties: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The solvers that the metric names: the best and its ties, or nothing."""
        return () if self.refused else (self.best, *self.ties)

    @property
    def verdict(self) -> str:
        return ", ".join(self.names[:1]) + "".join(f" = {tie}" for tie in self.ties) if self.names else NONE

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "names": list(self.names),
            "best": self.best,
            "ties": list(self.ties),
            "refused": list(self.refused),
            "no_iteration": self.still,
            "random_network": self.floor,
            "solvers": {
                name: {
                    "distance": self.distance[name],
                    "deviation": self.deviation[name],
                    "steps": list(self.assigned[name].steps),
                    **({} if name == self.best else _margin(self.margins[name])),
                }
                for name in self.distance
            },
        }


def _margin(margin: Margin) -> dict[str, Any]:
    return {"margin": margin.mean, "margin_interval": list(margin.interval), "margin_deviation": margin.deviation}


def judge(measured: Measured, floor: Floor | None, rules: Rules) -> dict[str, Judged]:
    """Every metric of a read-out."""
    return {metric: _judged(measured, metric, floor, rules) for metric in METRICS}


def _judged(measured: Measured, metric: str, floor: Floor | None, rules: Rules) -> Judged:
    values = measured.values(metric)
    means = {name: float(value.mean()) for name, value in values.items()}
    best = min(means, key=lambda name: means[name])
    margins = {name: Margin.of(value - values[best]) for name, value in values.items() if name != best}
    least = rules.tie * means[best]
    ties = tuple(name for name, each in margins.items() if each.interval[0] <= 0 or each.mean < least)
    return Judged(
        metric,
        means,
        {name: value.std().item() for name, value in values.items()},
        measured.assigned(metric),
        measured.still(metric),
        None if floor is None else floor.metrics[metric],
        best,
        margins,
        tuple(sorted(ties, key=lambda name: means[name])),
        tuple(_refusals(measured, metric, means[best], floor, rules)),
    )


def _refusals(measured: Measured, metric: str, best: float, floor: Floor | None, rules: Rules) -> list[str]:
    """The conditions of `Rules` that do not hold, in words."""
    last, still = float(measured.to_krr[:, -1].mean()), measured.still(metric)
    ends = f"the last layer ends {last:.3g} from KRR"
    found = []
    if best > rules.share * still:
        found.append(f"{best:.3g} is not below {rules.share:g} of {still:.3g}, that of no iteration")
    free = min(float(value.mean()) for value in measured.values(A).values())
    if metric == A_LIN and best > max((1 + rules.tie) * free, ROUNDING):
        found.append(f"no fixed pace: {best:.3g} is more than {rules.tie:g} above the {free:.3g} of A")
    if last > rules.share:
        found.append(f"{ends}, not below {rules.share:g}")
    if floor is not None and metric != C and best > rules.random * floor.metrics[metric]:
        found.append(f"{best:.3g} is not below {rules.random:g} of a random network's {floor.metrics[metric]:.3g}")
    if floor is not None and last > rules.random * floor.last:
        found.append(f"{ends}, not below {rules.random:g} of a random network's {floor.last:.3g}")
    return found
