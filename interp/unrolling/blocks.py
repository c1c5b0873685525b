"""The simplest class of a matrix block: zero · c·I · diagonal · aI + b·11ᵀ · c·projection · rank r · full."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class BlockClass:
    """A matrix in words: what it is, its numbers, and ‖matrix − that‖ / scale."""

    name: str
    numbers: dict[str, float]
    residual: float

    def __str__(self) -> str:
        values = {key: f"{value:.6g}" for key, value in self.numbers.items()}
        forms = {
            "zero": "0",
            "identity": "{c}·I",
            "diagonal": "diagonal, {smallest} … {largest}",
            "identity_plus_ones": "{a}·I + {b}·11ᵀ",
            "projection": "{c}·projection of rank {rank}",
            "rank": "rank {rank}, singular values {smallest} … {largest}",
            "full": "full rank, singular values {smallest} … {largest}",
        }
        return forms[self.name].format(**values)


def describe_block(
    matrix: Float[Tensor, "row column"], tolerance: float = 1e-2, scale: float | None = None
) -> BlockClass:
    """The first class, from the simplest on, whose best fit leaves ‖residual‖_F ≤ tolerance · scale.

    Args:
        scale: what the residual is compared with; by default the Frobenius norm of the matrix.
    """
    if not torch.isfinite(matrix).all():
        raise ValueError("describe_block: the matrix holds NaN or inf")
    if not tolerance >= 0 or (scale is not None and not scale >= 0):
        raise ValueError(f"describe_block: tolerance={tolerance} and scale={scale} must be 0 or more")
    size = matrix.norm().item() if scale is None else scale
    candidates = list(_candidates(matrix.double(), tolerance * size))
    fitting = (
        (found, residual) for found, fit in candidates if (residual := (matrix - fit).norm().item()) <= tolerance * size
    )
    (name, numbers), residual = next(fitting, (candidates[-1][0], 0.0))
    return BlockClass(name, numbers, residual / size if size else 0.0)


def _candidates(matrix: Tensor, allowed: float):
    """Class name and numbers with the fitted matrix, simplest first."""
    rows, columns = matrix.shape
    yield ("zero", {}), torch.zeros_like(matrix)
    if rows == columns:
        c = matrix.diagonal().mean()
        yield ("identity", {"c": c.item()}), c * torch.eye(rows).to(matrix)
        diagonal = matrix.diagonal()
        yield ("diagonal", {"smallest": diagonal.min().item(), "largest": diagonal.max().item()}), torch.diag(diagonal)
        b = (matrix.sum() - matrix.trace()) / max(1, rows * rows - rows)
        a = c - b
        fit = a * torch.eye(rows).to(matrix) + b
        yield ("identity_plus_ones", {"a": a.item(), "b": b.item()}), fit
        yield _projection(matrix, allowed)
    U, sigma, Vh = torch.linalg.svd(matrix, full_matrices=False)
    tails = sigma.square().flip(0).cumsum(0).flip(0).sqrt()
    rank = int((tails > allowed).sum())
    numbers = {"smallest": sigma[max(rank - 1, 0)].item(), "largest": sigma[0].item()}
    if rank < min(rows, columns):
        yield ("rank", {"rank": rank, **numbers}), U[:, :rank] * sigma[:rank] @ Vh[:rank]
    yield ("full", numbers), matrix


def _projection(matrix: Tensor, allowed: float) -> tuple[tuple[str, dict[str, float]], Tensor]:
    """c times the orthogonal projection on the eigenvectors of the symmetric part that matter."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    kept = values.abs() > values.abs().max() / 2
    c, basis = values[kept].mean(), vectors[:, kept]
    return ("projection", {"c": c.item(), "rank": int(kept.sum())}), c * basis @ basis.T
