"""The exact solution of G w = moment, as a solver of one step."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic


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
        return {"w": problem.solve(problem.moment)}
