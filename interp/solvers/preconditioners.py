"""What multiplies the gradient: P⁻¹ as a matrix [d, d], or its diagonal as a column [d, 1], for all prompts or each.

A preconditioner is such a tensor, or a function of the problem that gives one.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import KernelSystem, Quadratic, symmetric
from interp.solvers.settings import require

Preconditioner = Tensor | Callable[[Quadratic], Tensor]


def jacobi(problem: Quadratic) -> Float[Tensor, "batch d 1"]:
    """P = diag(G)."""
    return 1 / problem.G.diagonal(dim1=-2, dim2=-1)[..., None]


def row_sums(problem: Quadratic) -> Float[Tensor, "batch n 1"]:
    """P = D + λI, D = diag(K 1): what softmax attention divides by (MATH §6).

    For a kernel without negative entries spec(P⁻¹(K + λI)) lies in [λ/(D_max + λ), 1].
    """
    system = require("row_sums", KernelSystem, problem)
    sums = system.K.sum(-1, keepdim=True) + system.lam
    if not (sums > 0).all():
        raise ValueError("row_sums: D + λ has an entry that is not positive; give a kernel without negative entries")
    return 1 / sums


def inverse_of(owner: str, preconditioner: Preconditioner, problem: Quadratic) -> Float[Tensor, "*batch d width"]:
    """P⁻¹ of the problem, its shape checked."""
    inverse = preconditioner if isinstance(preconditioner, Tensor) else preconditioner(problem)
    batch, width = problem.G.shape[:2]
    fits = inverse.ndim in (2, 3) and inverse.shape[-2:] in ((width, width), (width, 1))
    if not fits or (inverse.ndim == 3 and len(inverse) not in (1, batch)):
        raise ValueError(
            f"{owner}: the preconditioner must be [{width}, {width}] or a diagonal [{width}, 1], "
            f"one for all or for each of {batch} prompts, got {list(inverse.shape)}"
        )
    return inverse.to(problem.G)


def factor_of(owner: str, inverse: Float[Tensor, "*batch d width"]) -> Float[Tensor, "*batch d width"]:
    """L with P⁻¹ = L Lᵀ.

    Raises:
        ValueError: P⁻¹ is not symmetric positive definite and finite.
    """
    if inverse.shape[-1] == 1:
        factor, good = inverse.sqrt(), bool((inverse > 0).all())
    else:
        factor, info = torch.linalg.cholesky_ex(inverse)
        good = symmetric(inverse) and not info.any()
    if not (good and factor.isfinite().all()):
        raise ValueError(f"{owner}: the preconditioner must be symmetric positive definite and finite")
    return factor


def apply(matrix: Float[Tensor, "*batch d width"], w: Float[Tensor, "batch d out"]) -> Float[Tensor, "batch d out"]:
    """The matrix, or the diagonal, times w."""
    return matrix * w if matrix.shape[-1] == 1 else matrix @ w


def transform(L: Float[Tensor, "*batch d width"], G: Float[Tensor, "batch d d"]) -> Float[Tensor, "batch d d"]:
    """Lᵀ G L, whose spectrum is that of P⁻¹ G."""
    return L * G * L.mT if L.shape[-1] == 1 else L.mT @ G @ L
