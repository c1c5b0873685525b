"""Conjugate gradients on the normal equations, for every label column by itself."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.solvers.iterate import LeastSquares


@dataclass(frozen=True)
class ConjugateGradient:
    """Minimises the error's G-norm over the Krylov space of G and AᵀC, from w = 0.

    Exact after as many steps as G has distinct positive eigenvalues; before that the error falls at least by
    2((√κ − 1)/(√κ + 1))^k, κ of G. A column whose residual has fallen to rounding stays where it is.

    Source: Hestenes and Stiefel 1952.
    """

    def start(self, problem: LeastSquares) -> dict[str, Any]:
        residual = problem.moment
        rounding = 10 * problem.G.shape[-1] * torch.finfo(residual.dtype).eps
        floor = rounding**2 * _dot(residual, residual)
        return {"w": torch.zeros_like(residual), "residual": residual, "direction": residual, "floor": floor}

    def step(self, problem: LeastSquares, state: dict[str, Any]) -> dict[str, Any]:
        residual, direction = state["residual"], state["direction"]
        image = problem.G @ direction
        energy = _dot(residual, residual)
        energy = torch.where(energy > state["floor"], energy, 0)
        alpha = _ratio(energy, _dot(direction, image))
        after = residual - alpha * image
        turned = after + _ratio(_dot(after, after), energy) * direction
        return {**state, "w": state["w"] + alpha * direction, "residual": after, "direction": turned}


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(-2, keepdim=True)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / torch.where(below > 0, below, 1), 0)
