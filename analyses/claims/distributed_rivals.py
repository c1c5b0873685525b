"""DANE on several machines: its errors by round, at its best settings (gradient averaging is `rivals.Descent`)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import System, first_below

DAMPINGS = (0.0, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Of DANE, in units of λ_max(AᵀA)/M."""
SINGULAR = 1e-14


@dataclass(frozen=True, eq=False)
class Tuned:
    """A method at the setting that takes fewest rounds, prompt by prompt.

    Args:
        errors: its errors after 0, 1, … rounds.
        setting: the damping that was best, in units of λ_max(AᵀA)/M.
    """

    errors: Float[Tensor, "round prompt"]
    setting: Float[Tensor, "prompt"]


def tuned_dane(system: System, machines: int, tolerance: float, rounds: int) -> Tuned:
    """DANE (Shamir, Srebro and Zhang 2014) with the damping of `DAMPINGS` and the step size, 1 or the best fixed one,
    that reach the tolerance first: a choice that only someone who knows the solution can make.

    Its error is multiplied by I − η mean_μ (A_μᵀA_μ + m I)⁻¹ AᵀA/M each round. Settings whose local Hessians are
    singular to rounding are left out; those that diverge lose.
    """
    factors = torch.cat([_dane_factors(system, machines, damping) for damping in DAMPINGS], 1)
    error = system.exact[:, None].expand(*factors.shape[:2], *system.exact.shape[1:])
    size = system.exact.flatten(1).norm(dim=1)[:, None]
    errors = [torch.ones(factors.shape[:2]).to(error)]
    while len(errors) <= rounds and bool((errors[-1].amin(1) > tolerance).any()):
        error = factors @ error
        errors.append((error.flatten(2).norm(dim=2) / size).nan_to_num(nan=torch.inf))
    curves = torch.stack(errors)
    best = _fewest(curves, tolerance)
    chosen = curves.take_along_dim(best[None, :, None], 2)[..., 0]
    return Tuned(chosen.cpu(), torch.tensor(DAMPINGS, dtype=torch.float64)[best.cpu() // 2])


def _fewest(curves: Float[Tensor, "round prompt setting"], tolerance: float) -> Tensor:
    """The setting that is first at the tolerance, of those the one with the least error at the end."""
    last = curves[-1].clamp(max=1e300)
    return (first_below(curves, tolerance) + last / last.amax(1, keepdim=True) / 2).argmin(1)


def _dane_factors(system: System, machines: int, damping: float) -> Float[Tensor, "prompt 2 d d"]:
    """I − η mean_μ (A_μᵀA_μ + m I)⁻¹ AᵀA/M with η = 1 and the best η; infinite where a Hessian is singular."""
    A, G = system.problem.A.unflatten(1, (machines, -1)), system.problem.G
    eye = torch.eye(A.shape[-1]).to(A)
    scale = torch.linalg.eigvalsh(G)[:, -1, None, None, None] / machines
    hessians = A.mT @ A + damping * scale * eye
    values = torch.linalg.eigvalsh(hessians)
    usable = (values[..., 0] > SINGULAR * values[..., -1]).all(1)
    inverse = torch.linalg.inv(torch.where(usable[:, None, None, None], hessians, eye)).mean(1) / machines
    spectrum = torch.linalg.eigvals(inverse @ G).real
    best = 2 / (spectrum.amin(1) + spectrum.amax(1))
    steps = torch.stack([torch.ones_like(best), best], 1)[..., None, None]
    return torch.where(usable[:, None, None, None], eye - steps * (inverse @ G)[:, None], torch.inf)
