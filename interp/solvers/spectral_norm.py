"""The norm ν of a layer: exact, by power iterations, or given."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def gram(A: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch m m"]:
    """The smaller of AᵀA and A Aᵀ."""
    return A.mT @ A if A.shape[-1] <= A.shape[-2] else A @ A.mT


def squared_norm(A: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch 1 1"]:
    """‖A‖₂², the largest eigenvalue of the smaller Gram matrix; 1 for a matrix of zeros."""
    return largest_eigenvalue(gram(A))


def largest_eigenvalue(G: Float[Tensor, "*batch m m"]) -> Float[Tensor, "*batch 1 1"]:
    """λ_max of a positive semi-definite matrix; 1 for a matrix of zeros."""
    largest = torch.linalg.eigvalsh(G)[..., -1]
    return torch.where(largest > 0, largest, 1)[..., None, None]


def power_squared_norm(A: Float[Tensor, "*batch n d"], iterations: int, seed: int) -> Float[Tensor, "*batch 1 1"]:
    """‖AᵀA v‖ of the unit vector v that `iterations` − 1 products with AᵀA leave of a seeded normal vector, the same in
    every prompt; 1 for a matrix of zeros. Never above ‖A‖₂² but for rounding, and below it by an amount of order
    log(d)/iterations of it at most, whatever the spectrum (Kuczyński and Woźniakowski 1992).
    """
    v = torch.randn(A.shape[-1], 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(A)
    size = torch.ones_like(A[..., :1, :1])
    for _ in range(iterations):
        v = A.mT @ (A @ (v / v.norm(dim=-2, keepdim=True)))
        size = v.norm(dim=-2, keepdim=True)
        v = torch.where(size > 0, v, 1)
    return torch.where(size > 0, size, 1)


def given_norm(
    owner: str, norms: Float[Tensor, "step *batch"] | Sequence[float], step: int, A: Tensor
) -> Float[Tensor, "#batch 1 1"]:
    """The norm of a layer, for all prompts or for each."""
    given = torch.as_tensor(norms, dtype=A.dtype, device=A.device)
    if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] != len(A)) or not (given > 0).all():
        raise ValueError(f"{owner}: norms must be positive, [step] or [step, {len(A)}], got {list(given.shape)}")
    if step >= len(given):
        raise ValueError(f"{owner}: norms has {len(given)} entries; ask for at most as many steps, or give more")
    return given[step].reshape(-1, 1, 1)
