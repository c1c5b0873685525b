"""Rows that lie on several machines: systems of a prescribed diversity.

The diversity index α is the smallest positive eigenvalue of the mean over machines of the projections on range(A_μᵀ)
(MATH §4): 1 if every machine sees every direction, small if some direction is seen by few.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import System, consistent
from models.prompts import random


def diverse_system(
    alpha: float, machines: int, d: int, kappa: float, prompts: int, seed: int, device: str = "cpu"
) -> System:
    """A consistent system of a given diversity, its machines of condition number κ each.

    Each of d // M orthogonal groups of M directions has one combination v_μ that machine μ does not see; the v_μ of a
    group have unit length and equal inner products, so that λ_max(mean_μ v_μ v_μᵀ) = 1 − α. Machine μ has one row for
    each direction that it does see, log-uniform singular values over [1/κ, 1] between Haar frames. At α = 1 every
    machine has d rows.

    Raises:
        ValueError: α is not in (0, 1 − 1/M] or 1, or d < M.
    """
    if alpha != 1 and not (0 < alpha <= 1 - 1 / machines and d >= machines):
        raise ValueError(
            f"diverse_system: {machines} machines and d={d} give α = 1, or 0 < α ≤ {1 - 1 / machines:.3g} with d at "
            f"least {machines}; α={alpha} is neither"
        )
    generator = torch.Generator().manual_seed(seed)
    turn = random.haar_frames(prompts, d, d, generator)
    rows = [_machine(seen @ turn, kappa, generator) for seen in _seen(alpha, machines, d)]
    return consistent(torch.cat(rows, 1).to(device), seed)


def diversity(A: Float[Tensor, "prompt n d"], machines: int) -> Float[Tensor, "prompt"]:
    """α of each prompt, from the singular vectors of the machines' rows."""
    own = A.unflatten(1, (machines, -1))
    values, basis = torch.linalg.svd(own, full_matrices=False)[1:]
    kept = (values > 1e-10 * values[..., :1]).to(A)[..., None] * basis
    mean = torch.linalg.eigvalsh((kept.mT @ kept).mean(1))
    return torch.where(mean > 1e-10, mean, torch.inf).amin(-1)


def _seen(alpha: float, machines: int, d: int) -> list[Float[Tensor, "direction d"]]:
    """An orthonormal basis of what each machine sees, before the turn of all directions."""
    if alpha == 1:
        return [torch.eye(d, dtype=torch.float64)] * machines
    inner = (machines * (1 - alpha) - 1) / (machines - 1)
    gram = torch.full((machines, machines), inner, dtype=torch.float64).fill_diagonal_(1)
    values, vectors = torch.linalg.eigh(gram)
    unseen = vectors * values.clamp(min=0).sqrt()
    copies = d // machines
    blocks = [torch.block_diag(*[row[None]] * copies) for row in unseen]
    padded = [torch.nn.functional.pad(block, (0, d - copies * machines)) for block in blocks]
    return [torch.linalg.svd(block)[2][copies:] for block in padded]


def _machine(
    basis: Float[Tensor, "prompt direction d"], kappa: float, generator: torch.Generator
) -> Float[Tensor, "prompt direction d"]:
    """Rows whose row space is that of the basis."""
    prompts, count = basis.shape[:2]
    sigma = random.log_uniform(prompts, count, kappa, generator)
    left, right = (random.haar_frames(prompts, count, count, generator) for _ in range(2))
    return left * sigma[:, None] @ right.mT @ basis
