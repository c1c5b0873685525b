"""Seeded draws, in float64 on the CPU, so that one seed means the same numbers everywhere."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian(shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "..."]:
    """Independent standard normal entries."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64)


def white_noise(deviation: float, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "..."]:
    """Independent normal entries with the given standard deviation; nothing is drawn if that is 0."""
    return deviation * gaussian(shape, generator) if deviation else torch.zeros(tuple(shape), dtype=torch.float64)


def haar_frames(count: int, n: int, rank: int, generator: torch.Generator) -> Float[Tensor, "batch n rank"]:
    """Orthonormal columns, uniformly distributed: Q of a Gaussian matrix, with the signs that make R positive."""
    q, r = torch.linalg.qr(gaussian((count, n, rank), generator))
    return q * torch.sign(r.diagonal(dim1=-2, dim2=-1))[:, None, :]


def log_uniform(count: int, rank: int, kappa: float, generator: torch.Generator) -> Float[Tensor, "batch rank"]:
    """Values with uniform logarithm in [1/κ, 1]; the first is 1 and the last 1/κ."""
    exponent = torch.rand(count, rank, generator=generator, dtype=torch.float64)
    exponent[:, -1] = 1
    exponent[:, 0] = 0
    return torch.exp(-math.log(kappa) * exponent)
