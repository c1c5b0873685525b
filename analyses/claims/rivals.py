"""First-order methods beside EAGLE, counted without running all of their steps."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import System

PRODUCTS = 3  # of matrices in an iteration of EAGLE, AᵀA, A G and B G; conjugate gradients: one of G and a vector
MOST_STEPS = 2.0**60
SPENT = 1e-14  # share of a vector outside of a space below which it lies in it


@dataclass(frozen=True, eq=False)
class Descent:
    """Gradient descent with its best fixed step in closed form: after k steps the error is (1 − ηg)^k on the eigenvalue
    g, with η = 2/(g_min + g_max). On several machines it is gradient averaging.

    Args:
        share: of the solution's squared norm along each eigenvector.
        log_left: log |1 − ηg|.
    """

    share: Float[Tensor, "prompt value"]
    log_left: Float[Tensor, "prompt value"]

    @classmethod
    def of(cls, system: System) -> "Descent":
        values, basis = torch.linalg.svd(system.problem.A, full_matrices=False)[1:]
        g = values.square()
        share = (basis @ system.exact)[..., 0].square()
        share = torch.where(g > 1e-20 * g[:, :1], share, 0) / share.sum(1, keepdim=True)
        smallest = torch.where(share > 0, g, torch.inf).amin(1, keepdim=True)
        return cls(share, log_left(2 * g / (smallest + g[:, :1])))

    def errors(self, steps: Float[Tensor, "*count prompt"]) -> Float[Tensor, "*count prompt"]:
        return (self.share * (2 * steps.to(self.share)[..., None] * self.log_left).exp()).sum(-1).sqrt()


def log_left(step: Float[Tensor, "*value"]) -> Float[Tensor, "*value"]:
    """log |1 − ηg| at ηg: what a step of gradient descent leaves. Exact where ηg is small; −1,000 for nothing."""
    small = torch.log1p(-step.clamp(max=0.5))
    return torch.where(step < 0.5, small, (1 - step).abs().log()).clamp(min=-1e3)


def descent_errors(system: System, steps: Float[Tensor, " count"]) -> Float[Tensor, "count prompt"]:
    """Relative errors of w after these numbers of steps."""
    return Descent.of(system).errors(steps[:, None].expand(-1, system.prompts)).cpu()


def descent_counts(system: System, tolerance: float) -> Float[Tensor, "prompt"]:
    """Steps of gradient descent with its best fixed step to a relative error, by bisection. Capped at 2^60."""
    descent = Descent.of(system)
    low = torch.zeros(system.prompts).to(descent.share)
    high = torch.full_like(low, MOST_STEPS)
    while bool((high - low > 1).any()):
        middle = torch.where(high - low > 1, ((low + high) / 2).floor(), high)
        arrived = descent.errors(middle) <= tolerance
        low, high = torch.where(arrived, low, middle), torch.where(arrived, middle, high)
    return high.cpu()


def cg_in_exact_arithmetic(system: System, tolerance: float) -> Float[Tensor, "prompt"]:
    """Steps of conjugate gradients on the normal equations if rounding did not undo their orthogonality, at most d."""
    pairs = zip(system.problem.A, system.exact, strict=True)
    return torch.tensor([_krylov_steps(A, exact, tolerance) for A, exact in pairs], dtype=torch.float64)


def _krylov_steps(A: Float[Tensor, "n d"], exact: Float[Tensor, "d 1"], tolerance: float) -> int:
    """The first k at which the iterate of conjugate gradients is near enough: of all vectors V y of the Krylov space of
    AᵀA and AᵀC, V an orthonormal basis of k vectors, the one that minimises ‖A V y − C‖. By bisection: the iterates'
    distance to the solution never grows (Hestenes and Stiefel 1952)."""
    labels, basis = A @ exact, _krylov_basis(A, exact)
    low, high = 0, basis.shape[1]
    while high - low > 1:
        middle = (low + high) // 2
        V = basis[:, :middle]
        found = V @ torch.linalg.lstsq(A @ V, labels).solution
        near = bool((found - exact).norm() <= tolerance * exact.norm())
        low, high = (low, middle) if near else (middle, high)
    return high


def _krylov_basis(A: Float[Tensor, "n d"], exact: Float[Tensor, "d 1"]) -> Float[Tensor, "d step"]:
    """Lanczos vectors of AᵀA from AᵀA w, each orthogonalised twice to all before; until nothing is left, at most d."""
    basis, vector = A.new_zeros(A.shape[1], 0), A.mT @ (A @ exact)
    for _ in range(A.shape[1]):
        size = vector.norm()
        for _ in range(2):
            vector = vector - basis @ (basis.mT @ vector)
        if vector.norm() <= SPENT * size:
            break
        basis = torch.cat([basis, vector / vector.norm()], 1)
        vector = A.mT @ (A @ basis[:, -1:])
    return basis
