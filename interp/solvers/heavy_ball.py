"""Gradient descent with Polyak's momentum."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between, check_momentum


@dataclass(frozen=True)
class HeavyBall:
    """w_{k+1} = w_k − η (G w_k − moment) + β (w_k − w_{k−1}), from w_0 = w_{−1} = 0.

    Converges for 0 ≤ β < 1, 0 < η < 2(1 + β)/λ_max(G). Settings left out are the best for the prompt,
    η = 4/(√λ_max + √λ_min)², β = ((√λ_max − √λ_min)/(√λ_max + √λ_min))²: rate √β a step. With a
    momentum but no step size, η is at most (1 + β)/λ_max. Not monotone.

    Source: Polyak 1964.
    """

    step_size: float | None = None
    momentum: float | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        smallest, largest = (value.sqrt()[:, None, None] for value in problem.spectrum)
        check_momentum("HeavyBall", self.momentum)
        beta = ((largest - smallest) / (largest + smallest)) ** 2 if self.momentum is None else self.momentum
        eta = 4 / (largest + smallest) ** 2
        if self.step_size is not None:
            bound = float((2 * (1 + beta) / largest**2).min())
            check_between("HeavyBall", "step_size", self.step_size, bound, "2(1 + β)/λ_max")
            eta = self.step_size
        elif self.momentum is not None:
            eta = eta.minimum((1 + beta) / largest**2)
        w = torch.zeros_like(problem.moment)
        return {"w": w, "before": w, "eta": eta, "beta": beta}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        w, velocity = state["w"], state["w"] - state["before"]
        moved = w - state["eta"] * problem.gradient(w) + state["beta"] * velocity
        return {**state, "w": moved, "before": w}
