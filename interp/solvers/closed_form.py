"""The exact solution of G w = moment, as a solver of one step."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import Quadratic


def solution(G: Float[Tensor, "batch d d"], moment: Float[Tensor, "batch d out"]) -> Float[Tensor, "batch d out"]:
    """G⁻¹ moment by Cholesky; where any G is singular to rounding, G⁺ moment (least norm) for the whole batch."""
    factor, info = torch.linalg.cholesky_ex(G)
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    tolerance = G.shape[-1] * torch.finfo(G.dtype).eps
    if info.any() or (pivots.amin(-1) ** 2 <= 10 * tolerance * pivots.amax(-1) ** 2).any():
        return torch.linalg.pinv(G, rtol=tolerance, hermitian=True) @ moment
    return torch.cholesky_solve(moment, factor)


@dataclass(frozen=True)
class ClosedForm:
    """w_0 = 0, and from the first step on w = G⁺ moment, of least norm where G is singular.

    On LeastSquares: (AᵀA + λI)⁻¹ AᵀC, ridge regression (Hoerl and Kennard 1970), at λ = 0 least squares.
    On KernelSystem: (K + λI)⁻¹ y, kernel ridge regression (Saunders, Gammerman and Vovk 1998).
    The normal equations lose digits as κ(A)² grows.
    """

    def start(self, problem: Quadratic) -> dict[str, Any]:
        return {"w": torch.zeros_like(problem.moment)}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return {"w": solution(problem.G, problem.moment)}
