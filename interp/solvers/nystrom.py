"""Nyström extrapolation: the unseen block of a positive semi-definite matrix from a slice of it."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import LeastSquares, Quadratic, rounding, symmetric
from interp.solvers.settings import check_whole, rows


@dataclass(frozen=True)
class Nystrom:
    """w_0 = 0, then w = A⁺ C; the unseen block is Cᵀ A⁺ C (`extrapolate`).

    A [batch, n, n] is the Gram matrix of n landmarks, C [batch, n, out] their products with the unseen points. Exact if
    the rank of the whole matrix is that of A. A rank keeps the leading eigenvalues of A only; those below n·ε·λ_max
    count as 0.

    Source: Williams and Seeger 2001; MATH §1.
    """

    rank: int | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("Nystrom", problem)
        if A.shape[1] != A.shape[2] or not symmetric(A):
            raise ValueError(f"Nystrom: A must be a symmetric Gram matrix [batch, n, n], got {list(A.shape)}")
        if self.rank is not None:
            check_whole("Nystrom", "rank", self.rank, None)
        if self.rank is not None and not 1 <= self.rank <= A.shape[1]:
            raise ValueError(f"Nystrom: rank={self.rank} must lie between 1 and the {A.shape[1]} landmarks")
        return {"w": torch.zeros_like(C)}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        A, C = rows("Nystrom", problem)
        values, vectors = torch.linalg.eigh(A)
        floor = rounding(A) * values[:, -1:]
        if (values < -10 * floor).any():
            raise ValueError(f"Nystrom: A has eigenvalue {values.min():.3g} < 0; give a positive semi-definite matrix")
        kept = values > floor
        kept[:, : A.shape[-1] - (self.rank or A.shape[-1])] = False
        inverse = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
        return {"w": (vectors * inverse[:, None]) @ (vectors.mT @ C)}

    def extrapolate(self, problem: LeastSquares) -> Float[Tensor, "batch out out"]:
        """Cᵀ A⁺ C."""
        return problem.C.mT @ self.step(problem, self.start(problem))["w"]
