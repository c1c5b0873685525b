"""Is a block a random sketch: its eigenvalues and entries against those of c S Sᵀ, S a uniform orthonormal frame."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

DRAWS = 400
"""Matrices drawn from the null; one half is the reference distribution, the other the statistic's under the null."""
EIGENVALUE_RESOLUTION = 0.1
"""Eigenvalues are rounded to multiples of this part of c: S Sᵀ has only 0 and 1, which any noise would tell apart."""
CALIBRATION_DRAWS = 32
LARGEST_NOISE = 1.0


@dataclass(frozen=True)
class SketchTest:
    """Kolmogorov–Smirnov statistics of a block's symmetric part, in units of c, with Monte-Carlo p-values.

    Null: a noisy sketch, c (S + σE)(S + σE')ᵀ + cτF, with S [d, r] orthonormal and uniform, E, E', F Gaussian, τ the
    block's own noise outside the directions of its projection, and σ such that the relative distance from a multiple of
    a projection is the block's own. So the test asks whether the directions are uniform, not whether the block is near
    a projection.
    """

    eigenvalues: float
    eigenvalues_p: float
    entries: float
    entries_p: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class NearProjection:
    """c P, the nearest multiple of an orthogonal projection of a rank, and ‖block − c P‖ / ‖block‖."""

    c: float
    rank: int
    residual: float
    P: Float[Tensor, "x x"]

    def to_dict(self) -> dict[str, Any]:
        return {"c": self.c, "rank": self.rank, "residual": self.residual}


def nearest_projection(block: Float[Tensor, "x x"], rank: int) -> NearProjection:
    """The `rank` eigenvectors at one end of the symmetric part's spectrum, at the end whose eigenvalues sum to more."""
    c, frame = (part[0] for part in _nearest(block[None], rank))
    P = frame @ frame.mT
    size = block.norm()
    residual = ((block - c * P).norm() / size).item() if size else 0.0
    return NearProjection(c.item(), rank, residual, P)


def _nearest(blocks: Float[Tensor, "draw x x"], rank: int) -> tuple[Tensor, Tensor]:
    """c [draw] and the frames [draw, x, rank]."""
    values, vectors = torch.linalg.eigh((blocks + blocks.mT) / 2)
    top, bottom = values[:, -rank:].mean(1), values[:, :rank].mean(1)
    down = bottom.abs() > top.abs()
    frame = torch.where(down[:, None, None], vectors[..., :rank], vectors[..., -rank:])
    return torch.where(down, bottom, top), frame


def sketch_test(block: Float[Tensor, "x x"], rank: int, draws: int = DRAWS, seed: int = 0) -> SketchTest | None:
    """The test of one block; None where a projection of the rank is the identity, or c is 0.

    Args:
        rank: r of the null.
        seed: of the draws.
    """
    near = nearest_projection(block, rank)
    if rank >= len(block) or not abs(near.c) > 1e-9 * block.norm():
        return None
    generator = torch.Generator().manual_seed(seed)
    beyond = _noise_beyond(block, near)
    noise = _noise_within(near, beyond, generator)
    null = _noisy_sketches(draws, near, noise, beyond, generator)
    found = []
    for features in (_eigenvalues, _entries):
        drawn = features(null / _nearest(null, rank)[0][:, None, None])
        reference = drawn[: draws // 2].flatten().sort().values
        statistics = kolmogorov_smirnov(drawn[draws // 2 :], reference)
        own = kolmogorov_smirnov(features(block[None] / near.c), reference)
        exceeding = int((statistics >= own - 1e-12).sum())
        found += [own.item(), (1 + exceeding) / (1 + len(statistics))]
    return SketchTest(*found)


def _eigenvalues(blocks: Float[Tensor, "draw x x"]) -> Float[Tensor, "draw x"]:
    values = torch.linalg.eigvalsh((blocks + blocks.mT) / 2)
    return (values / EIGENVALUE_RESOLUTION).round() * EIGENVALUE_RESOLUTION


def _entries(blocks: Float[Tensor, "draw x x"]) -> Float[Tensor, "draw entry"]:
    """On and above the diagonal."""
    row, column = torch.triu_indices(blocks.shape[-1], blocks.shape[-1])
    return ((blocks + blocks.mT) / 2)[:, row, column]


def _noise_beyond(block: Float[Tensor, "x x"], near: NearProjection) -> float:
    """τ, from (I − P) block (I − P), which a sketch with noise on its frames alone leaves nearly 0."""
    rest = torch.eye(len(block)).to(block) - near.P
    return ((rest @ block @ rest).norm() / abs(near.c) / (len(block) - near.rank)).item()


def _noisy_sketches(
    count: int, near: NearProjection, within: float, beyond: float, generator: torch.Generator
) -> Float[Tensor, "draw d d"]:
    d = len(near.P)
    normal = torch.randn(3, count, d, near.rank, generator=generator, dtype=torch.float64)
    S = torch.linalg.qr(normal[0])[0]
    F = torch.randn(count, d, d, generator=generator, dtype=torch.float64)
    return (S + within * normal[1]) @ (S + within * normal[2]).mT + beyond * F


def _noise_within(near: NearProjection, beyond: float, generator: torch.Generator) -> float:
    """σ at which noisy sketches are on average as far from a projection, by bisection; at most `LARGEST_NOISE`."""
    state = generator.get_state()

    def distance(noise: float) -> float:
        blocks = _noisy_sketches(CALIBRATION_DRAWS, near, noise, beyond, generator.set_state(state))
        c, frame = _nearest(blocks, near.rank)
        gap = blocks - c[:, None, None] * (frame @ frame.mT)
        return (gap.norm(dim=(1, 2)) / blocks.norm(dim=(1, 2))).mean().item()

    low, high = 0.0, LARGEST_NOISE
    for _ in range(30 if near.residual > 1e-9 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if distance(middle) < near.residual else (low, middle)
    return low


def kolmogorov_smirnov(
    samples: Float[Tensor, "draw value"], reference: Float[Tensor, " sorted"]
) -> Float[Tensor, " draw"]:
    """sup |F_sample − F_reference| of each sample against a sorted reference, ties allowed."""
    samples = samples.sort(dim=1).values.contiguous()
    size, far = samples.shape[1], []
    for right in (False, True):  # the limits from the left and the values at the sample's points
        inside = torch.searchsorted(samples, samples, right=right).double() / size
        outside = torch.searchsorted(reference.contiguous(), samples, right=right).double() / len(reference)
        far.append((inside - outside).abs().max(dim=1).values)
    return torch.maximum(*far)
