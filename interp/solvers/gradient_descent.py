"""Gradient descent with a fixed step."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.iterate import LeastSquares


@dataclass(frozen=True)
class GradientDescent:
    """w ← w − η (G w − AᵀC), from w = 0.

    Converges for 0 < η < 2/λ_max(G). Without a step size, each prompt gets the one with the best worst-case rate,
    η = 2/(λ_min + λ_max), λ_min the smallest positive eigenvalue; its rate is (λ_max − λ_min)/(λ_max + λ_min).

    Source: Nesterov, Introductory Lectures on Convex Optimization, theorem 2.1.15.
    """

    step_size: float | None = None

    def start(self, problem: LeastSquares) -> dict[str, Any]:
        smallest, largest = problem.spectrum
        if self.step_size is None:
            eta = 2 / (smallest + largest)
        elif 0 < self.step_size < 2 / largest.max():
            eta = torch.full_like(largest, self.step_size)
        else:
            raise ValueError(
                f"GradientDescent: step_size={self.step_size} diverges or stands still; it must lie between 0 and "
                f"2/λ_max = {2 / largest.max():.6g}"
            )
        return {"w": torch.zeros_like(problem.moment), "eta": eta[:, None, None]}

    def step(self, problem: LeastSquares, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "w": state["w"] - state["eta"] * problem.gradient(state["w"])}
