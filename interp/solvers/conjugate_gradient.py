"""Conjugate gradients, for every label column by itself."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.per_column import dot, ratio, rounding_floor
from interp.solvers.problems import Quadratic


@dataclass(frozen=True)
class ConjugateGradient:
    """Minimises the error's G-norm over the Krylov space of G and the moment, from w = 0.

    Exact after as many steps as G has distinct positive eigenvalues; before that the error falls at least by
    2((√κ − 1)/(√κ + 1))^k, κ of G. A column whose residual has fallen to rounding stays where it is.
    On least squares these are conjugate gradients on the normal equations.

    Source: Hestenes and Stiefel 1952.
    """

    def start(self, problem: Quadratic) -> dict[str, Any]:
        residual = problem.moment
        floor = rounding_floor(residual)
        return {"w": torch.zeros_like(residual), "residual": residual, "direction": residual, "floor": floor}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        residual, direction = state["residual"], state["direction"]
        image = problem.G @ direction
        energy = dot(residual, residual)
        energy = torch.where(energy > state["floor"], energy, 0)
        alpha = ratio(energy, dot(direction, image))
        after = residual - alpha * image
        turned = after + ratio(dot(after, after), energy) * direction
        return {**state, "w": state["w"] + alpha * direction, "residual": after, "direction": turned}
