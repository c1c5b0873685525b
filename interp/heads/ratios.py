"""Ratios of sums over prompts, with the interval of a jackknife over prompts."""

import math

from jaxtyping import Float
from scipy.stats import t as student
from torch import Tensor

from interp.probes.scores import LEVEL, Score


def ratio(above: Float[Tensor, "prompt"], below: Float[Tensor, "prompt"]) -> Score:
    """Σ above / Σ below and its 95 % interval: Student's t on the jackknife's standard error, prompts independent."""
    count = len(above)
    value = (above.sum() / below.sum()).item()
    left_out = (above.sum() - above) / (below.sum() - below)
    error = math.sqrt((count - 1) / count * (left_out - left_out.mean()).square().sum().item())
    half = float(student.ppf((1 + LEVEL) / 2, count - 1)) * error
    return Score(value, (value - half, value + half))


def r2(errors: Float[Tensor, "prompt"], spread: Float[Tensor, "prompt"]) -> Score:
    """1 − Σ errors / Σ spread."""
    found = ratio(errors, spread)
    return Score(1 - found.value, (1 - found.interval[1], 1 - found.interval[0]))


def distance(errors: Float[Tensor, "prompt"], spread: Float[Tensor, "prompt"]) -> Score:
    """√(Σ errors / Σ spread), a relative Frobenius distance."""
    found = ratio(errors, spread)
    low, high = (math.sqrt(max(end, 0.0)) for end in found.interval)
    return Score(math.sqrt(found.value), (low, high))


def held_out(count: int) -> slice:
    """The last quarter of the prompts, two at least."""
    return slice(count - max(round(count / 4), 2), count)


def to_plain(score: Score) -> dict[str, object]:
    """For JSON."""
    return {"value": score.value, "interval": list(score.interval)}
