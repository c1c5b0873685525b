"""Richardson iteration whose step sizes are the inverse Chebyshev nodes of an interval."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from interp.solvers.interval import interval_of
from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_whole


@dataclass(frozen=True)
class ChebyshevNodes:
    """w ← w − (G w − moment)/ν_l, ν_l = θ + δ cos(π (2l − 1)/2N), l = 1 … N in some order, from w = 0.

    θ and δ are centre and half-width of the interval [a, b] of eigenvalues. After N steps the error on an eigenvalue
    g is T_N((θ − g)/δ) / T_N(θ/δ), that of Chebyshev semi-iteration; before that it is not, and it may grow. More steps
    repeat the cycle. The nodes are taken in Leja order, each farthest from those before, which keeps rounding small.
    Converges if b ≥ λ_max(G) and a > 0.

    Args:
        cycle: N, the number of nodes.
        interval: (a, b); each prompt's own smallest positive and largest eigenvalue if left out.

    Source: Richardson 1910; Young 1953; the order: Reichel 1990.
    """

    cycle: int
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_whole("ChebyshevNodes", "cycle", self.cycle)

    @cached_property
    def cosines(self) -> list[float]:
        """The nodes of [−1, 1], in Leja order."""
        left = [math.cos(math.pi * (2 * index + 1) / (2 * self.cycle)) for index in range(self.cycle)]
        ordered = [left.pop(0)]
        while left:
            farthest = max(left, key=lambda node: sum(math.log(abs(node - other)) for other in ordered))
            left.remove(farthest)
            ordered.append(farthest)
        return ordered

    def start(self, problem: Quadratic) -> dict[str, Any]:
        low, high = interval_of("ChebyshevNodes", self.interval, problem)
        centre, half_width = (high + low) / 2, (high - low) / 2
        return {"w": torch.zeros_like(problem.moment), "centre": centre, "half_width": half_width, "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        node = state["centre"] + state["half_width"] * self.cosines[state["step"] % self.cycle]
        w = state["w"] - problem.gradient(state["w"]) / node
        return {**state, "w": w, "step": state["step"] + 1}
