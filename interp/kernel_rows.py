"""What each point of a kernel system has of its own: row sum, dual coefficient, sums over the points it sees."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.layout import ROLES, BlockLayout
from interp.solvers import ClosedForm, KernelSystem, iterate


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Quantities of (K + λI) α = y that a token can hold, one row a point (MATH §6).

    With `causal` a point sees the points up to itself, as under a causal mask: D_i = Σ_{j ≤ i} k(x_i, x_j), and its
    α_i is the last coefficient of the system of the first i points, (L⁻¹y)_i / L_ii with K + λI = L Lᵀ.

    Args:
        x, y: the points [batch, n, d] and their labels [batch, n, out].
        covariance, lam: k and λ.

    Raises:
        ValueError: (from `dual`) λ that is not positive where a causal system is solved; as `KernelSystem`.
    """

    x: Tensor
    y: Tensor
    covariance: Covariance
    lam: float
    causal: bool = False

    @cached_property
    def K(self) -> Float[Tensor, "batch n n"]:
        """k of all pairs of points."""
        return self.covariance(self.x, self.x)

    @cached_property
    def seen(self) -> Float[Tensor, "batch n n"]:
        """K where a row sees the column, else 0."""
        return self.K.tril() if self.causal else self.K

    @cached_property
    def row_sums(self) -> Float[Tensor, "batch n 1"]:
        """D."""
        return self.seen.sum(-1, keepdim=True)

    @property
    def share(self) -> Float[Tensor, "batch n 1"]:
        """p = λ / (D + λ)."""
        return self.lam / (self.row_sums + self.lam)

    @cached_property
    def dual(self) -> Float[Tensor, "batch n out"]:
        """α."""
        if not self.causal:
            return iterate(ClosedForm(), KernelSystem(self.K, self.y, self.lam), 1)[-1]
        if not self.lam > 0:
            raise ValueError(f"KernelRows: the dual coefficients under a causal mask need λ > 0, got {self.lam}")
        system = self.K + self.lam * torch.eye(self.K.shape[-1]).to(self.K)
        L = torch.linalg.cholesky(system)
        return torch.linalg.solve_triangular(L, self.y, upper=False) / L.diagonal(dim1=-2, dim2=-1)[..., None]

    @property
    def smoothed_labels(self) -> Float[Tensor, "batch n out"]:
        """K y."""
        return self.seen @ self.y

    @property
    def fit(self) -> Float[Tensor, "batch n out"]:
        """K α = y − λα: the posterior mean at the point itself."""
        return self.y - self.lam * self.dual


def sees_the_past(layout: BlockLayout) -> bool:
    """Do the context rows of every head see themselves and the rows before them only?"""
    rules: Any = layout.visibility if isinstance(layout.visibility, tuple) else (layout.visibility,)
    return all(rule.of(ROLES[0]) == "causal" for rule in rules)
