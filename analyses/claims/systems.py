"""Least-squares systems whose solution is known, and how solvers do on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.claims.claim import Measurement
from analyses.claims.fits import bootstrap
from interp.solvers import LeastSquares, Solver
from interp.solvers.seeds import mixed
from models.prompts import LogUniformSpectrum

SOLUTION, NOISE = range(1_000_000, 1_000_002)
"""Streams of a seed, away from those of steps."""


@dataclass(frozen=True, eq=False)
class System:
    """Consistent systems A w = C.

    Args:
        problem: A [prompt, n, d] and C = A w [prompt, n, 1].
        exact: the solution of least norm [prompt, d, 1].
    """

    problem: LeastSquares
    exact: Float[Tensor, "prompt d out"]

    @property
    def prompts(self) -> int:
        return len(self.exact)

    def error(self, w: Float[Tensor, "prompt d out"]) -> Float[Tensor, "prompt"]:
        """‖w − exact‖ / ‖exact‖."""
        return (w - self.exact).flatten(1).norm(dim=1) / self.exact.flatten(1).norm(dim=1)


def log_uniform(
    kappa: float, size: tuple[int, int], prompts: int, seed: int, *, rank: int | None = None, device: str = "cpu"
) -> System:
    """A [n, d] with log-uniform singular values over [1/κ, 1], both ends pinned, between Haar frames; w isotropic in
    the row space."""
    n, d = size
    drawn = LogUniformSpectrum(n=n, d=d, kappa=kappa, rank=rank).sample(prompts, seed=seed, device=device)
    return consistent(drawn.A, seed, rank)


def consistent(A: Float[Tensor, "prompt n d"], seed: int, rank: int | None = None) -> System:
    """The system whose solution is normal, projected on the row space of A where its rank is less than d; the seed may
    be that of A, as the solution has a stream of its own."""
    generator = torch.Generator().manual_seed(mixed(seed, SOLUTION))
    w = torch.randn(len(A), A.shape[2], 1, generator=generator, dtype=torch.float64).to(A)
    if rank is not None and rank < A.shape[2]:
        rows = torch.linalg.svd(A, full_matrices=False).Vh[:, :rank]
        w = rows.mT @ (rows @ w)
    return System(LeastSquares(A, A @ w), w)


def error_curve(solver: Solver, system: System, steps: int, *, until: float = 0.0) -> Float[Tensor, "step prompt"]:
    """The error after 0, 1, … steps, to the step at which that of every prompt has been at most `until`.

    A solver that goes on from the state it reached, one step at a time: iterates are not kept.
    """
    state = solver.start(system.problem)
    errors = [system.error(state["w"])]
    least = errors[0]
    while len(errors) <= steps and not bool((least <= until).all()):
        state = solver.step(system.problem, state)
        errors.append(system.error(state["w"]))
        least = torch.minimum(least, errors[-1])
    return torch.stack(errors).cpu()


def first_below(errors: Float[Tensor, "step *shape"], tolerance: float) -> Int[Tensor, "*shape"]:
    """The first step whose error is at most the tolerance; where there is none, how many steps there are, which is
    the least that it can be."""
    below = errors <= tolerance
    return torch.where(below.any(0), below.int().argmax(0), len(errors))


def rms(errors: Float[Tensor, "*step prompt"]) -> Float[Tensor, "*step"]:
    return errors.square().mean(-1).sqrt()


def over_prompts(
    statistic: Callable[[Float[Tensor, "step *resample prompt"]], Float[Tensor, "*resample"]],
    errors: Float[Tensor, "step prompt"],
    note: str,
    seed: int = 0,
) -> Measurement:
    """A statistic of error curves, with its interval over resampled prompts."""
    indices = torch.arange(errors.shape[1], dtype=torch.float64)
    return bootstrap(lambda chosen: statistic(errors[:, chosen.long()]).double(), indices, note, seed)


def predicted_errors(
    sigma: Float[Tensor, "*set value"], eta: float | Tensor, gamma: float | Tensor, steps: int
) -> Float[Tensor, "step *set"]:
    """The recursion of EAGLE in scalars, σ ← σ (1 + η σ²/ν²) and r ← r (1 − γ σ²/ν²) with ν the largest σ of the
    step: rms of r over the values, which is the error of an isotropic w. Constants a set: tensors [*set, 1]."""
    sigma = sigma / sigma.amax(-1, keepdim=True)
    error, seen = torch.ones_like(sigma), []
    for _ in range(steps + 1):
        seen.append(rms(error))
        square = sigma.square()
        error, sigma = error * (1 - gamma * square), (sigma * (1 + eta * square)).abs()
        sigma = sigma / sigma.amax(-1, keepdim=True).clamp(min=1e-300)
    return torch.stack(seen)


def log_spaced(kappa: float, count: int) -> Float[Tensor, " value"]:
    """Values from 1 to 1/κ, equally spaced in their logarithm."""
    return torch.logspace(0, -math.log10(kappa), count, dtype=torch.float64)
