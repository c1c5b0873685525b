"""Nesterov's accelerated gradient."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between, check_momentum


@dataclass(frozen=True)
class Nesterov:
    """v = w_k + β (w_k − w_{k−1}),  w_{k+1} = v − η (G v − moment), from w_0 = w_{−1} = 0.

    A setting left out is Nesterov's constant scheme: η = 1/λ_max(G), β = (√κ − 1)/(√κ + 1) with κ = 1/(η λ_min),
    λ_min the smallest positive eigenvalue; rate √(1 − 1/√κ) or better. On a quadratic it converges exactly for
    0 ≤ β < 1, 0 < η < 2(1 + β)/((1 + 2β) λ_max). Not monotone.

    Source: Nesterov 1983; Introductory Lectures on Convex Optimization, scheme 2.2.11.
    """

    step_size: float | None = None
    momentum: float | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        smallest, largest = (value[:, None, None] for value in problem.spectrum)
        check_momentum("Nesterov", self.momentum)
        eta = 1 / largest if self.step_size is None else torch.full_like(largest, self.step_size)
        root = (eta * smallest).clamp(min=0, max=1).sqrt()
        beta = (1 - root) / (1 + root) if self.momentum is None else torch.full_like(root, self.momentum)
        if self.step_size is not None:
            bound = float((2 * (1 + beta) / ((1 + 2 * beta) * largest)).min())
            check_between("Nesterov", "step_size", self.step_size, bound, "2(1 + β)/((1 + 2β)λ_max)")
        w = torch.zeros_like(problem.moment)
        return {"w": w, "before": w, "eta": eta, "beta": beta}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        w = state["w"]
        ahead = w + state["beta"] * (w - state["before"])
        return {**state, "w": ahead - state["eta"] * problem.gradient(ahead), "before": w}
