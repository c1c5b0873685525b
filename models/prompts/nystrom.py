"""Nyström extrapolation: prompts that are slices of a positive semidefinite matrix, so that B = Cᵀ."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts.completion import assemble
from models.prompts.family import (
    Draw,
    PromptFamily,
    check_at_least_one,
    check_positive,
    check_spectrum,
    scaled_edges,
)
from models.prompts.random import gaussian, haar_frames, log_uniform

KERNELS = {
    "rbf": lambda distance: torch.exp(-distance.square() / 2),
    "laplace": lambda distance: torch.exp(-distance),
}


@dataclass(frozen=True)
class HaarNystrom(PromptFamily):
    """Positive semidefinite matrices without a preferred direction.

        A = V diag(σ) Vᵀ,  V Haar, σ log-uniform in [1/κ, 1] with both ends pinned
        C = A W,  B = Cᵀ,  D* = Wᵀ A W = Cᵀ A⁺ C,  entries of W normal with variance 1/n

    Args:
        n: context rows and x columns.           n_query: query rows and y columns.
        kappa: κ(A), at least 1.                 scale: multiplies the whole prompt.

    Raises:
        ValueError: a size below 1, κ < 1.
    """

    n: int
    n_query: int
    kappa: float = 10.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_at_least_one(self, {"n": self.n, "n_query": self.n_query})
        check_spectrum(self, self.kappa, self.n)
        check_positive(self, {"scale": self.scale})

    @property
    def widths(self) -> tuple[int, int]:
        return self.n, self.n_query

    @property
    def queries(self) -> int:
        return self.n_query

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        sigma = log_uniform(count, self.n, self.kappa, generator)
        frame = haar_frames(count, self.n, self.n, generator)
        root = math.sqrt(self.scale) * sigma.sqrt()[:, None, :] * frame
        slices = root.mT @ gaussian((count, self.n, self.n_query), generator) / math.sqrt(self.n)
        C = root @ slices
        return assemble(root @ root.mT, C.mT, C), slices.mT @ slices

    def edges(self) -> dict[str, PromptFamily]:
        edges = scaled_edges(self)
        if self.kappa > 1:
            edges[f"κ = {3 * self.kappa:g}"] = replace(self, kappa=3 * self.kappa)
        return edges


@dataclass(frozen=True)
class KernelNystrom(PromptFamily):
    """Gram matrices of a kernel on Gaussian points: landmarks, and an unseen slice of the kernel.

        K_ij = k(‖x_i - x_j‖ / lengthscale) / n,   A = K + ridge·I on the n landmarks,  C = K(landmarks, new),  B = Cᵀ
        D* = Cᵀ A⁺ C, the Nyström approximation of K(new, new)

    The trace of K on the landmarks is 1, hence ‖A‖₂ ≤ scale·(1 + ridge). κ(A) is what the points make it.

    Args:
        n: landmarks.    n_query: new points.    dimension: of the points.    kernel: "rbf" or "laplace".
        lengthscale, ridge, scale: as above.

    Raises:
        ValueError: a size below 1, an unknown kernel, a setting that is not positive.
    """

    n: int
    n_query: int
    kernel: str = "rbf"
    dimension: int = 5
    lengthscale: float = 1.0
    ridge: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_at_least_one(self, {name: getattr(self, name) for name in ("n", "n_query", "dimension")})
        check_positive(self, {"lengthscale": self.lengthscale, "scale": self.scale})
        if self.kernel not in KERNELS:
            raise ValueError(f"KernelNystrom: unknown kernel {self.kernel!r}; known: {', '.join(KERNELS)}")
        if not 0 <= self.ridge < float("inf"):
            raise ValueError(f"KernelNystrom: ridge={self.ridge} must be 0 or more")

    @property
    def widths(self) -> tuple[int, int]:
        return self.n, self.n_query

    @property
    def queries(self) -> int:
        return self.n_query

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        points = gaussian((count, self.n + self.n_query, self.dimension), generator)
        gram = self.scale / self.n * KERNELS[self.kernel](torch.cdist(points, points) / self.lengthscale)
        ridge = self.scale * self.ridge * torch.eye(self.n, dtype=gram.dtype)
        A, C = gram[:, : self.n, : self.n] + ridge, gram[:, : self.n, self.n :]
        return assemble(A, C.mT, C), C.mT @ _solve(A, C)

    def edges(self) -> dict[str, PromptFamily]:
        longer = 2 * self.lengthscale
        return {**scaled_edges(self), f"lengthscale = {longer:g}": replace(self, lengthscale=longer)}


def _solve(A: Float[Tensor, "batch n n"], C: Float[Tensor, "batch n y"]) -> Float[Tensor, "batch n y"]:
    """A⁺ C for positive semidefinite A."""
    return torch.linalg.pinv(A, hermitian=True, rtol=1e-13) @ C
