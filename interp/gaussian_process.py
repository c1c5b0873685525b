"""Exact Gaussian-process regression: kernel ridge regression with the noise variance as the penalty."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.solvers import ClosedForm, KernelSystem, iterate


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of f at the queries: mean [batch, query, out] and variance [batch, query], without the noise."""

    mean: Tensor
    variance: Tensor


def kernel_system(covariance: Covariance, lam: float, x: Float[Tensor, "batch n x"], y: Tensor) -> KernelSystem:
    """(K + λI) α = y of the context points (MATH §6)."""
    return KernelSystem(covariance(x, x), y, lam)


def posterior(
    covariance: Covariance,
    lam: float,
    x: Float[Tensor, "batch n x"],
    y: Float[Tensor, "batch n out"],
    queries: Float[Tensor, "batch query x"],
) -> Posterior:
    """Mean k_q (K + λI)⁻¹ y, which is kernel ridge regression, and variance k(q, q) − k_q (K + λI)⁻¹ k_qᵀ.

    Args:
        covariance: k.            lam: λ, the variance of the noise on y.
        x, y: context points.     queries: where f is asked for.

    Raises:
        ValueError: a negative λ; λ = 0 where points coincide and their labels differ.
    """
    across = covariance(queries, x)
    system = kernel_system(covariance, lam, x, y)
    alpha = iterate(ClosedForm(), system, 1)[-1]
    variance = 1 - (across * system.solve(across.mT).mT).sum(-1)
    return Posterior(across @ alpha, variance.clamp(min=0))
