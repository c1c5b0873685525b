"""First-order methods beside EAGLE, counted without running all of their steps."""

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import System

PRODUCTS = 3  # of matrices in an iteration of EAGLE, AᵀA, A G and B G; conjugate gradients: one of G and a vector
MOST_STEPS = 2.0**60
SPENT = 1e-14  # share of a vector outside of a space below which it lies in it


def descent_counts(system: System, tolerance: float) -> Float[Tensor, "prompt"]:
    """Steps of gradient descent with its best fixed step to a relative error, by bisection on its closed form: after
    k steps the error is (1 − ηg)^k on the eigenvalue g, with η = 2/(g_min + g_max). Capped at 2^60."""
    values, basis = torch.linalg.svd(system.problem.A, full_matrices=False)[1:]
    g = values.square()
    share = (basis @ system.exact)[..., 0].square()
    share = torch.where(g > 1e-20 * g[:, :1], share, 0) / share.sum(1, keepdim=True)
    smallest = torch.where(share > 0, g, torch.inf).amin(1, keepdim=True)
    log_factor = (1 - 2 * g / (smallest + g[:, :1])).abs().clamp(min=1e-300).log()

    def arrived(k: Float[Tensor, "prompt"]) -> Tensor:
        return (share * (2 * k[:, None] * log_factor).exp()).sum(1).sqrt() <= tolerance

    low, high = torch.zeros(len(g)).to(g), torch.full_like(g[:, 0], MOST_STEPS)
    while bool((high - low > 1).any()):
        middle = ((low + high) / 2).floor()
        middle = torch.where(high - low > 1, middle, high)
        low, high = torch.where(arrived(middle), low, middle), torch.where(arrived(middle), middle, high)
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
