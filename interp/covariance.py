"""Covariance functions of Gaussian processes, k(x, x') with k(x, x) = 1: the kernels of data, not of attention."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from jaxtyping import Float
from torch import Tensor


def _squared(x: Tensor, other: Tensor) -> Tensor:
    """‖x_i − x'_j‖² from the differences, so that coincident points are at distance 0 exactly."""
    return (x[..., :, None, :] - other[..., None, :, :]).square().sum(-1)


def _euclidean(x: Tensor, other: Tensor) -> Tensor:
    return _squared(x, other).sqrt()


def _rbf(x: Tensor, other: Tensor) -> Tensor:
    return (-_squared(x, other) / 2).exp()


def _matern12(x: Tensor, other: Tensor) -> Tensor:
    return (-_euclidean(x, other)).exp()


def _matern32(x: Tensor, other: Tensor) -> Tensor:
    distance = math.sqrt(3) * _euclidean(x, other)
    return (1 + distance) * (-distance).exp()


def _laplace(x: Tensor, other: Tensor) -> Tensor:
    return (-(x[..., :, None, :] - other[..., None, :, :]).abs().sum(-1)).exp()


COVARIANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "laplace": _laplace,
}
"""With r = ‖x − x'‖/ℓ: rbf exp(−r²/2), matern12 exp(−r), matern32 (1 + √3 r) exp(−√3 r); laplace exp(−‖x − x'‖₁/ℓ),
which is matern12 for one input column. In scikit-learn: RBF, Matern(nu=0.5), Matern(nu=1.5), laplacian_kernel."""


@dataclass(frozen=True)
class Covariance:
    """k(x, x') of a Gaussian process of variance 1.

    Args:
        name: one of `COVARIANCES`.
        lengthscale: ℓ, what distances of inputs are divided by.

    Raises:
        ValueError: another name, or a lengthscale that is not positive and finite.
    """

    name: str = "rbf"
    lengthscale: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in COVARIANCES:
            raise ValueError(f"unknown covariance {self.name!r}; known: {', '.join(COVARIANCES)}")
        if not 0 < self.lengthscale < math.inf:
            raise ValueError(f"Covariance: lengthscale={self.lengthscale} must be positive and finite")

    def __call__(
        self, x: Float[Tensor, "*batch row x"], other: Float[Tensor, "*batch column x"]
    ) -> Float[Tensor, "*batch row column"]:
        """k of every row of x with every row of `other`."""
        return COVARIANCES[self.name](x / self.lengthscale, other / self.lengthscale)

    def __str__(self) -> str:
        return f"{self.name}, ℓ = {self.lengthscale:g}"

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)
