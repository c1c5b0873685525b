"""Gradient descent with exact line search, for every label column by itself."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.per_column import dot, ratio, rounding_floor
from interp.solvers.problems import Quadratic


@dataclass(frozen=True)
class SteepestDescent:
    """w ← w + η r, r = moment − G w, η = ⟨r, r⟩ / ⟨r, G r⟩, from w = 0.

    Converges on every problem; the error's squared G-norm falls at least by ((κ − 1)/(κ + 1))² a step, κ of G.
    A column whose residual has fallen to rounding stays where it is.

    Source: Cauchy 1847; the rate is Kantorovich's (Luenberger and Ye, Linear and Nonlinear Programming, chapter 8).
    """

    def start(self, problem: Quadratic) -> dict[str, Any]:
        return {"w": torch.zeros_like(problem.moment), "floor": rounding_floor(problem.moment)}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        residual = -problem.gradient(state["w"])
        energy = dot(residual, residual)
        eta = ratio(torch.where(energy > state["floor"], energy, 0), dot(residual, problem.G @ residual))
        return {**state, "w": state["w"] + eta * residual}
