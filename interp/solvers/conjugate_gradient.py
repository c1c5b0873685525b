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
    2((√κ − 1)/(√κ + 1))^k, κ of G. A column that has converged stays where it is.

    Source: Hestenes and Stiefel 1952.
    """

    def start(self, problem: LeastSquares) -> dict[str, Any]:
        residual = problem.moment
        return {"w": torch.zeros_like(residual), "residual": residual, "direction": residual}

    def step(self, problem: LeastSquares, state: dict[str, Any]) -> dict[str, Any]:
        residual, direction = state["residual"], state["direction"]
        image = problem.G @ direction
        energy = _dot(residual, residual)
        alpha = _ratio(energy, _dot(direction, image))
        after = residual - alpha * image
        beta = _ratio(_dot(after, after), energy)
        return {"w": state["w"] + alpha * direction, "residual": after, "direction": after + beta * direction}


def _dot(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(-2, keepdim=True)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / torch.where(below > 0, below, 1), 0)
