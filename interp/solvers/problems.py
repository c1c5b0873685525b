"""What is solved: least squares and kernel systems. Both are quadratics, min ½⟨w, G w⟩ − ⟨w, moment⟩."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def rounding(matrix: Tensor) -> float:
    """Eigenvalues below this share of the largest count as 0."""
    return torch.finfo(matrix.dtype).eps * matrix.shape[-1]


class Quadratic:
    """G symmetric positive semi-definite [batch, d, d] and moment [batch, d, out]: solve G w = moment."""

    G: Any
    moment: Any

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
        """Smallest positive and largest eigenvalue of G.

        Raises:
            ValueError: G is 0 on a prompt, or not positive semi-definite.
        """
        values = torch.linalg.eigvalsh(self.G)
        largest = values[:, -1]
        floor = rounding(self.G) * largest
        if not (largest > 0).all():
            prompt = int((largest <= 0).nonzero()[0])
            raise ValueError(f"{type(self).__name__}: the matrix of prompt {prompt} is 0; leave that prompt out")
        if (values[:, 0] < -10 * floor).any():
            raise ValueError(
                f"{type(self).__name__}: eigenvalue {values[:, 0].min():.3g} < 0; give a positive semi-definite matrix"
            )
        return torch.where(values > floor[:, None], values, torch.inf).amin(1), largest

    @cached_property
    def factor(self) -> Float[Tensor, "batch d d"] | None:
        """The Cholesky factor of G, or nothing where a prompt's G is singular to rounding."""
        factor, info = torch.linalg.cholesky_ex(self.G)
        pivots = factor.diagonal(dim1=-2, dim2=-1)
        floor = (10 * rounding(self.G)) ** 0.5 * pivots.amax(-1)
        return None if info.any() or (pivots.amin(-1) <= floor).any() else factor

    @cached_property
    def pseudo_inverse(self) -> Float[Tensor, "batch d d"]:
        """G⁺."""
        return torch.linalg.pinv(self.G, rtol=rounding(self.G), hermitian=True)

    def solve(self, right: Float[Tensor, "batch d out"]) -> Float[Tensor, "batch d out"]:
        """G⁻¹ right by Cholesky; where a prompt's G is singular, G⁺ right, of least norm, for the whole batch."""
        return self.pseudo_inverse @ right if self.factor is None else torch.cholesky_solve(right, self.factor)

    def gradient(self, w: Float[Tensor, "batch d out"]) -> Float[Tensor, "batch d out"]:
        """G w − moment."""
        return self.G @ w - self.moment


@dataclass(frozen=True, eq=False)
class LinearSystem(Quadratic):
    """G and moment as they are given."""

    G: Tensor
    moment: Tensor


@dataclass(frozen=True, eq=False)
class LeastSquares(Quadratic):
    """Minimise ½‖A w − C‖² + ½ lam ‖w‖² for each prompt of a batch.

    Args:
        A: inputs [batch, n, d].
        C: labels [batch, n, out].
        lam: ridge penalty, 0 or more.
    """

    A: Tensor
    C: Tensor
    lam: float = 0.0

    def __post_init__(self) -> None:
        _check("LeastSquares", self.A, self.C, self.lam, ("A", "C", "[batch, n, d]"))

    @cached_property
    def G(self) -> Float[Tensor, "batch d d"]:
        """AᵀA + lam I.

        Raises:
            ValueError: squares of A overflow or vanish.
        """
        G = self.A.mT @ self.A
        squares = G.diagonal(dim1=-2, dim2=-1).amax(-1)
        largest = self.A.abs().amax((-2, -1))
        representable = squares.isfinite() & ((squares >= torch.finfo(G.dtype).tiny) | (largest == 0))
        if not representable.all():
            prompt = int((~representable).nonzero()[0])
            raise ValueError(
                f"LeastSquares: AᵀA of prompt {prompt} is beyond {G.dtype}, as the largest entry of A is "
                f"{float(largest[prompt]):.3g}; divide A and C by that"
            )
        return _add_to_diagonal(G, self.lam)

    @cached_property
    def moment(self) -> Float[Tensor, "batch d out"]:
        """AᵀC."""
        return (self.C.mT @ self.A).mT


@dataclass(frozen=True, eq=False)
class KernelSystem(Quadratic):
    """(K + lam I) α = y, the dual of kernel ridge regression; a prediction is k(query, context) @ α (MATH §6).

    Args:
        K: symmetric positive semi-definite Gram matrix [batch, n, n].
        y: labels [batch, n, out].
        lam: ridge penalty, 0 or more; 0 only where y lies in the range of K.
    """

    K: Tensor
    y: Tensor
    lam: float

    def __post_init__(self) -> None:
        _check("KernelSystem", self.K, self.y, self.lam, ("K", "y", "[batch, n, n]"))
        if self.K.shape[1] != self.K.shape[2] or not symmetric(self.K):
            raise ValueError(f"KernelSystem: K must be symmetric [batch, n, n], got {list(self.K.shape)}")
        if self.lam == 0:
            self._check_range()
        elif self.factor is None:
            _ = self.spectrum  # refuses a matrix that is not positive semi-definite

    def _check_range(self) -> None:
        """Without ridge a label outside the range of K has no coefficients."""
        tolerance = 1e3 * self.K.shape[1] * torch.finfo(self.K.dtype).eps
        projected = self.K @ (torch.linalg.pinv(self.K, hermitian=True, rtol=tolerance) @ self.y)
        if (projected - self.y).abs().max() > tolerance**0.5 * self.y.abs().max():
            raise ValueError(
                "KernelSystem: K is singular and y lies outside its range, so lam=0 has no solution; lam > 0"
            )

    @cached_property
    def G(self) -> Float[Tensor, "batch n n"]:
        """K + lam I."""
        return _add_to_diagonal(self.K, self.lam)

    @property
    def moment(self) -> Float[Tensor, "batch n out"]:
        """y."""
        return self.y


def symmetric(matrix: Tensor) -> bool:
    """Symmetric to rounding."""
    asymmetry = (matrix - matrix.mT).abs_().amax()
    return bool(asymmetry <= 1e3 * rounding(matrix) * matrix.abs().amax())


def _finite(matrix: Tensor) -> bool:
    """A finite sum says so in one pass; one that overflowed says nothing."""
    return bool(matrix.sum().isfinite()) or bool(matrix.isfinite().all())


def _add_to_diagonal(matrix: Tensor, value: float) -> Tensor:
    if not value:
        return matrix
    added = matrix.clone()
    added.diagonal(dim1=-2, dim2=-1).add_(value)
    return added


def _check(owner: str, left: Tensor, right: Tensor, lam: float, names: tuple[str, str, str]) -> None:
    first, second, axes = names
    if left.ndim != 3 or right.ndim != 3 or left.shape[:2] != right.shape[:2] or 0 in (*left.shape, *right.shape):
        shapes = f"{list(left.shape)} and {list(right.shape)}"
        raise ValueError(f"{owner}: {first} must be {axes} and {second} [batch, n, out], none empty, got {shapes}")
    if left.dtype != right.dtype or left.dtype not in (torch.float32, torch.float64):
        types = f"{left.dtype} and {right.dtype}"
        raise ValueError(f"{owner}: {first} and {second} must both be float32 or both float64, got {types}")
    if not (_finite(left) and _finite(right)):
        raise ValueError(f"{owner}: {first} or {second} holds NaN or inf; leave those prompts out")
    if not 0 <= lam < float("inf"):
        raise ValueError(f"{owner}: lam={lam} must be finite and at least 0")
