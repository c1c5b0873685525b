"""Step sizes of the families with two words: which sets a sequence (η_l, γ_l) lies in, and with which settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CUBIC_MAX = 4 / 3  # |η| beyond which the largest singular value is not the one at σ = 1 or at σ² = 1/(3|η|)


@dataclass(frozen=True)
class Steps:
    """Step sizes fitted within a family, its settings, and how many numbers were free.

    The last layer's η reaches nothing and is None.
    """

    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    settings: dict[str, Any]
    free: int


def constant(values: Sequence[float]) -> float:
    """The one value nearest to all in relative terms: the geometric mean of values of one sign, else the mean."""
    array = np.asarray(values)
    if (array > 0).all() or (array < 0).all():
        return float(np.sign(array[0]) * np.exp(np.log(np.abs(array)).mean()))
    return float(array.mean())


def descent(eta: Sequence[float], gamma: Sequence[float]) -> Steps:
    """Gradient descent: η = 0, one γ."""
    step = constant(gamma)
    return Steps((0.0,) * len(eta), (step,) * len(gamma), {"gamma": step}, 1)


def scheduled_descent(eta: Sequence[float], gamma: Sequence[float]) -> Steps:
    """Scheduled gradient descent: η = 0, any γ."""
    return Steps((0.0,) * len(eta), tuple(gamma), {"gamma": list(gamma)}, len(gamma))


def chebyshev_nodes(eta: Sequence[float], gamma: Sequence[float]) -> Steps | None:
    """1/γ_l the Chebyshev nodes of an interval [a, b], 0 < a, in any order; None if some γ ≤ 0 or a ≤ 0."""
    depth = len(gamma)
    if min(gamma) <= 0:
        return None
    nodes = np.cos((2 * np.arange(1, depth + 1) - 1) * math.pi / (2 * depth))
    inverse = 1 / np.asarray(gamma)
    order = np.argsort(-inverse)
    design = np.stack([np.ones(depth), nodes], axis=1)
    weights = np.asarray(gamma)[order]  # relative residuals of 1/γ
    center, half = np.linalg.lstsq(design * weights[:, None], np.ones(depth), rcond=None)[0]
    if depth == 1:
        half = 0.0
    if center - abs(half) <= 0:
        return None
    fitted = np.empty(depth)
    fitted[order] = 1 / (center + half * nodes)
    settings = {"interval": [float(center - half), float(center + half)], "order": np.argsort(order).tolist()}
    return Steps((0.0,) * len(eta), tuple(fitted.tolist()), settings, min(2, depth))


def gd_plus_plus(eta: Sequence[float], gamma: Sequence[float]) -> Steps:
    """GD++: the same (η, γ) in all layers."""
    step, conditioning = constant(gamma), constant(eta) if len(eta) else 0.0
    settings = {"gamma": step, **({"eta": conditioning} if len(eta) else {})}
    return Steps((conditioning,) * len(eta), (step,) * len(gamma), settings, len(settings))


def shrinkage(eta: float) -> float:
    """max over σ in [0, 1] of σ |1 − |η| σ²|: the factor on ‖A‖₂ of one layer with η in units of 1/‖A‖₂²."""
    size = abs(eta)
    inside = 2 / 3 / math.sqrt(3 * size) if size >= 1 / 3 else 0.0
    return max(inside, abs(1 - size))


def eagle(eta: Sequence[float], gamma: Sequence[float]) -> Steps | None:
    """EAGLE(|η|, γ): equal in all layers in units of 1/‖A_l‖₂², with ‖A_{l+1}‖ = shrinkage(η) ‖A_l‖.

    The growth of γ_l from layer to layer is 1/shrinkage², which is one to one for 0 < |η| ≤ 4/3 and so gives η there;
    the ratio of the coefficients gives γ, and their size ‖A_0‖. None if the growth is not that of such an η.
    """
    depth = len(gamma)
    if min(gamma) <= 0 or (len(eta) and max(eta) >= 0):
        return None
    if depth == 1:
        return Steps((), tuple(gamma), {"gamma over norm squared": gamma[0]}, 1)
    growth = [gamma[i + 1] / gamma[i] for i in range(depth - 1)] + [eta[i + 1] / eta[i] for i in range(depth - 2)]
    size = _conditioning_of(constant(growth))
    if size is None:
        return None
    factor = shrinkage(size) ** -2
    first = constant([e / factor**i for i, e in enumerate(eta)])
    start = constant([c / factor**i for i, c in enumerate(gamma)])
    norm_squared = size / -first
    settings = {"eta": -size, "gamma": start * norm_squared, "initial norm": math.sqrt(norm_squared)}
    return Steps(
        tuple(first * factor**i for i in range(depth - 1)), tuple(start * factor**i for i in range(depth)), settings, 3
    )


def _conditioning_of(growth: float) -> float | None:
    """|η| in (0, 4/3] with shrinkage(η)⁻² = growth, by bisection; up to 2 % beyond the ends counts as the end."""
    if not 1 < growth < 9 * 1.02:
        return None
    low, high = 0.0, CUBIC_MAX
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if shrinkage(middle) ** -2 < growth else (low, middle)
    return (low + high) / 2


def scheduled_eagle(eta: Sequence[float], gamma: Sequence[float]) -> Steps:
    """Scheduled EAGLE: any η_l < 0 < γ_l."""
    return Steps(tuple(eta), tuple(gamma), {"eta": list(eta), "gamma": list(gamma)}, len(eta) + len(gamma))
