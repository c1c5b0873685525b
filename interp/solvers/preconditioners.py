"""What multiplies the gradient: P⁻¹ [d, d] or [batch, d, d], given as a matrix or as a function of the problem."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import KernelSystem, Quadratic
from interp.solvers.settings import require

Preconditioner = Tensor | Callable[[Quadratic], Tensor]


def jacobi(problem: Quadratic) -> Float[Tensor, "batch d d"]:
    """P = diag(G)."""
    return torch.diag_embed(1 / problem.G.diagonal(dim1=-2, dim2=-1))


def row_sums(problem: Quadratic) -> Float[Tensor, "batch n n"]:
    """P = D + λI, D = diag(K 1): what softmax attention divides by (MATH §6).

    For a kernel without negative entries spec(P⁻¹(K + λI)) lies in [λ/(D_max + λ), 1].
    """
    system = require("row_sums", KernelSystem, problem)
    sums = system.K.sum(-1) + system.lam
    if not (sums > 0).all():
        raise ValueError("row_sums: D + λ has an entry that is not positive; give a kernel without negative entries")
    return torch.diag_embed(1 / sums)


def inverse_of(owner: str, preconditioner: Preconditioner, problem: Quadratic) -> Float[Tensor, "batch d d"]:
    """P⁻¹ for each prompt, checked."""
    inverse = preconditioner if isinstance(preconditioner, Tensor) else preconditioner(problem)
    width = problem.G.shape[-1]
    fits = inverse.ndim in (2, 3) and inverse.shape[-2:] == (width, width)
    if not fits or (inverse.ndim == 3 and len(inverse) not in (1, len(problem.G))):
        raise ValueError(
            f"{owner}: the preconditioner must be [{width}, {width}] or [{len(problem.G)}, {width}, {width}], "
            f"got {list(inverse.shape)}"
        )
    inverse = inverse.to(problem.G)
    if not torch.allclose(inverse, inverse.mT) or torch.linalg.cholesky_ex(inverse).info.any():
        raise ValueError(f"{owner}: the preconditioner must be symmetric positive definite and finite")
    return inverse.expand_as(problem.G)


def largest_eigenvalue(inverse: Float[Tensor, "batch d d"], G: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch"]:
    """λ_max(P⁻¹ G), the spectrum of Lᵀ G L with P⁻¹ = L Lᵀ."""
    factor = torch.linalg.cholesky(inverse)
    return torch.linalg.eigvalsh(factor.mT @ G @ factor)[:, -1]
