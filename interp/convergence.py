"""Order, rate and depth of trajectories of errors [step, batch]: what a solver's iterates or a model's layers reach.

Errors are relative, e_0 about 1. Fits use pairs of one trajectory (e_k, e_{k+1}) within limits that the result repeats:
e_k ≤ `below`, and both above the rounding floor. The floor of a trajectory is `floor`, by default 1e3 ε of the dtype; a
trajectory that fell below 1e-4 and has stopped falling (last step: by less than a tenth) ends at ten times its least
error instead, if that is larger. Slopes are common to all prompts, intercepts are each prompt's own.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from scipy.stats import t as student
from torch import Tensor

LEVEL = 0.95
Errors = Float[Tensor, "step batch"]


@dataclass(frozen=True)
class Estimate:
    """A fitted number with an interval of 95 %.

    Args:
        name: "order" or "rate".
        interval: how low and high were found: "prompts resampled", or "regression" where there is one prompt.
        points: how many points of how many prompts the fit used.
        largest, smallest: the errors that they span.
    """

    name: str
    value: float
    low: float
    high: float
    interval: str
    points: int
    prompts: int
    largest: float
    smallest: float

    def __str__(self) -> str:
        of = f"{self.points} points of {self.prompts} prompt{'s' if self.prompts > 1 else ''}"
        span = f"errors {self.largest:.1e} to {self.smallest:.1e}"
        return f"{self.name} {self.value:.3g} [{self.low:.3g}, {self.high:.3g}] (95 %, {self.interval}; {of}, {span})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StepsTo:
    """By prompt: the first step at or below the tolerance, or None, and the least error of the trajectory."""

    tolerance: float
    steps: tuple[int | None, ...]
    floors: tuple[float, ...]

    @property
    def reached(self) -> int:
        """How many prompts reach the tolerance."""
        return sum(step is not None for step in self.steps)

    @property
    def median(self) -> int | None:
        """The (upper) median over prompts, or None where that prompt never reaches the tolerance."""
        ordered = sorted(self.steps, key=lambda step: float("inf") if step is None else step)
        return ordered[len(ordered) // 2]

    def __str__(self) -> str:
        taken, count = [step for step in self.steps if step is not None], len(self.steps)
        missed = max((low for low, step in zip(self.floors, self.steps, strict=True) if step is None), default=0.0)
        if not taken:
            return f"{self.tolerance:.1e}: never, floor = {missed:.1e}"
        span = f"{min(taken)}" if min(taken) == max(taken) else f"{min(taken)} to {max(taken)}"
        never = f"; never on {count - len(taken)} of {count}, floor = {missed:.1e}" if len(taken) < count else ""
        return f"{self.tolerance:.1e}: {span} steps{never}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def trajectory(iterates: Float[Tensor, "step batch *shape"], solution: Float[Tensor, "batch *shape"]) -> Errors:
    """‖w_k − w‖ / ‖w‖ [step, batch].

    Raises:
        ValueError: shapes that do not fit, numbers that are no floats, or a solution that is 0.
    """
    fits = iterates.ndim >= 2 and solution.ndim >= 1 and iterates.shape[1:] == solution.shape
    if not (fits and iterates.is_floating_point() and solution.is_floating_point()):
        raise ValueError(
            "trajectory: iterates must be floats [step, batch, …] and solution floats [batch, …] of the same shape, "
            f"got {list(iterates.shape)} of {iterates.dtype} and {list(solution.shape)} of {solution.dtype}"
        )
    size = solution.reshape(len(solution), -1).norm(dim=1)
    if not (size > 0).all():
        raise ValueError("trajectory: a solution is 0, errors relative to it do not exist; leave that prompt out")
    return (iterates - solution).reshape(*iterates.shape[:2], -1).norm(dim=2) / size


def order(
    errors: Errors, *, below: float = 0.5, floor: float | None = None, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """The exponent q of e_{k+1} ≈ C e_k^q: regression of log e_{k+1} on log e_k.

    2 for second order, 1 for a linear rate (and then also for e_k ∝ k^(−a): look at `rate` over several windows).

    Raises:
        ValueError: NaN or a negative error, no prompt with two pairs within the limits, errors that do not change, no
            resamples.
    """
    _check("order", errors)
    _check_resamples("order", resamples)
    usable = _usable(errors, below, floor)
    pairs = usable[:-1] & usable[1:]
    logs = errors.log()
    return _fit("order", logs[:-1], logs[1:], pairs, errors[:-1], resamples, seed)


def rate(
    errors: Errors, *, below: float = 1.0, floor: float | None = None, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """The factor ρ a step of e_k ≈ C ρ^k: regression of log e_k on k, over the steps within the limits.

    Raises:
        ValueError: NaN or a negative error, no prompt with two steps within the limits, no resamples.
    """
    _check("rate", errors)
    _check_resamples("rate", resamples)
    steps = torch.arange(len(errors), dtype=errors.dtype, device=errors.device)[:, None].expand_as(errors)
    usable = _usable(errors, below, floor)
    return _fit("rate", steps, errors.log(), usable, errors, resamples, seed)


def steps_to(errors: Errors, tolerance: float) -> StepsTo:
    """The first step at which each prompt's error is at most the tolerance, or None.

    Raises:
        ValueError: NaN or a negative error, a tolerance that is not positive.
    """
    _check("steps_to", errors)
    if not 0 < tolerance < float("inf"):
        raise ValueError(f"steps_to: tolerance={tolerance} must be positive and finite")
    reached = errors <= tolerance
    first = torch.where(reached.any(0), reached.int().argmax(0), -1).tolist()
    return StepsTo(tolerance, tuple(None if step < 0 else step for step in first), tuple(errors.amin(0).tolist()))


def _check_resamples(owner: str, resamples: int) -> None:
    if not isinstance(resamples, int) or resamples < 1:
        raise ValueError(f"{owner}: resamples={resamples} must be a whole number of at least 1")


def _check(owner: str, errors: Tensor) -> None:
    if errors.ndim != 2 or len(errors) < 2 or not errors.shape[1] or not errors.is_floating_point():
        raise ValueError(
            f"{owner}: errors must be floats [step, batch] of at least two steps, "
            f"got {list(errors.shape)} of {errors.dtype}"
        )
    if not (errors >= 0).all():  # NaN is not
        step, prompt = (~(errors >= 0)).nonzero()[0].tolist()
        raise ValueError(
            f"{owner}: errors are at least 0, but that of prompt {prompt} at step {step} is "
            f"{float(errors[step, prompt])}; leave that prompt out"
        )


def _usable(errors: Errors, below: float, floor: float | None) -> Bool[Tensor, "step batch"]:
    """Which errors are within the limits; what comes after the first one at the floor is not."""
    least = errors.amin(0)
    lowest = torch.full_like(least, 1e3 * torch.finfo(errors.dtype).eps if floor is None else floor)
    settled = (least < 1e-4) & (errors[-1] > 0.9 * errors[-2])
    if floor is None:
        lowest = torch.where(settled, torch.maximum(lowest, 10 * least), lowest)
    above = (errors > lowest).cumprod(0).bool()
    return above & (errors <= below) & errors.isfinite()


def _fit(name: str, x: Tensor, y: Tensor, use: Tensor, errors: Tensor, resamples: int, seed: int) -> Estimate:
    """The common slope of y on x over the points in use, each prompt centred by itself."""
    use = use & (use.sum(0) >= 2)
    count, prompts = int(use.sum()), int(use.any(0).sum())
    if not count:
        raise ValueError(f"{name}: no prompt has two points between the floor and the upper limit; give more steps")
    x, y = (_centred(values, use) for values in (x, y))
    xx, xy = x.square().sum(0), (x * y).sum(0)
    if float(xx.sum()) <= 1e-12 * count:
        raise ValueError(f"{name}: the errors do not change from step to step, so they have no {name}")
    slope = float(xy.sum() / xx.sum())
    if prompts > 1:
        interval, (low, high) = "prompts resampled", _resampled(xx, xy, use.any(0), resamples, seed)
    else:
        half = _half_width(float((y - slope * x)[use].square().sum()), float(xx.sum()), count)
        interval, (low, high) = "regression", (slope - half, slope + half)
    value, low, high = (slope, low, high) if name == "order" else map(_exp, (slope, low, high))
    spanned = errors[use]
    return Estimate(name, value, low, high, interval, count, prompts, float(spanned.max()), float(spanned.min()))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _centred(values: Errors, use: Bool[Tensor, "step batch"]) -> Errors:
    """Values minus their prompt's mean over the points in use, 0 elsewhere."""
    kept = torch.where(use, values, 0).double()
    mean = kept.sum(0) / use.sum(0).clamp(min=1)
    return torch.where(use, kept - mean, 0)


def _resampled(xx: Tensor, xy: Tensor, used: Tensor, resamples: int, seed: int) -> tuple[float, float]:
    """Percentiles of the slope when whole prompts are drawn with replacement."""
    xx, xy = xx[used].cpu(), xy[used].cpu()
    drawn = torch.randint(len(xx), (resamples, len(xx)), generator=torch.Generator().manual_seed(seed))
    slopes = xy[drawn].sum(1) / xx[drawn].sum(1).clamp(min=torch.finfo(xx.dtype).tiny)
    tail = (1 - LEVEL) / 2
    low, high = slopes.quantile(torch.tensor([tail, 1 - tail], dtype=slopes.dtype)).tolist()
    return low, high


def _half_width(squares: float, xx: float, count: int) -> float:
    """Student's interval of a slope; without end for two points, which fit every line."""
    if count < 3:
        return float("inf")
    return float(student.ppf((1 + LEVEL) / 2, count - 2)) * (squares / (count - 2) / xx) ** 0.5
