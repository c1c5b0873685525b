"""Ridge regression from moments: one eigendecomposition for all targets and penalties, GCV in closed form."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.probes.moments import Moments

ROUNDING = 1e-14  # a share of an eigenvalue or of a variance below which float64 holds no information
MEAN_ROUNDING = 1e-13  # a spread, as a share of the mean, that may be rounding


@dataclass(frozen=True)
class LinearFit:
    """y ≈ x @ coef + intercept, with the penalty that was chosen and the GCV value of every penalty.

    `positions` are the learned weights of the rows, where there are any.
    """

    coef: Float[Tensor, "feature column"]
    intercept: Float[Tensor, "column"]
    alpha: float
    gcv: tuple[float, ...]
    positions: Float[Tensor, "row"] | None = None

    def predict(self, x: Float[Tensor, "sample feature"]) -> Float[Tensor, "sample column"]:
        return x @ self.coef + self.intercept


@dataclass(frozen=True)
class Factor:
    """The eigendecomposition G = U diag(λ) Uᵀ of a centred Gram matrix of `count` rows."""

    eigenvalues: Float[Tensor, "feature"]
    vectors: Float[Tensor, "feature feature"]
    count: int

    @classmethod
    def of(cls, moments: Moments) -> "Factor":
        """Directions whose variance is the rounding of the mean, as in constant features, count as having none."""
        values, vectors = torch.linalg.eigh(moments.gram)
        noise = moments.count * (MEAN_ROUNDING * moments.x_mean.abs().max()) ** 2
        return cls(torch.where(values > noise, values, 0.0), vectors, moments.count)

    @property
    def unit(self) -> float:
        """The mean eigenvalue, the unit of relative penalties; 1 if no feature varies."""
        return self.eigenvalues.mean().item() or 1.0

    def inverse(self, alphas: Float[Tensor, "penalty"]) -> Float[Tensor, "penalty feature"]:
        """1/(λ + α); 0 for directions without variance, to rounding where α is 0 (the least-norm solution)."""
        shifted = self.eigenvalues + alphas[:, None]
        usable = (self.eigenvalues > 0) & (shifted > ROUNDING * self.eigenvalues.max())
        return torch.where(usable, 1 / shifted, 0.0)

    def freedom(self, alphas: Float[Tensor, "penalty"]) -> Float[Tensor, "penalty"]:
        """Degrees of freedom that the intercept and the coefficients take: 1 + Σ λ/(λ + α)."""
        return 1 + (self.inverse(alphas) * self.eigenvalues).sum(1)


def fit_ridge(moments: Moments, alphas: Sequence[float], factor: Factor | None = None) -> LinearFit:
    """The ridge solution with an unpenalised intercept, one penalty for all columns, chosen by GCV.

        coef = (G + αI)⁻¹ K,    GCV(α) = n Σ_columns RSS(α) / (n − df(α))²
        RSS = yᵀy − Σ_j k_j² (λ_j + 2α)/(λ_j + α)²

    with k = Uᵀ K, df = 1 + Σ λ/(λ + α). GCV is the rotation-invariant form of the leave-one-out error that
    scikit-learn's RidgeCV minimises (Golub, Heath, Wahba 1979): coefficients at a penalty are the same; the chosen one
    can be a neighbour where two are as good.

    Args:
        alphas: penalties ≥ 0 on ‖coef‖² against the summed squared error, as in scikit-learn.
        factor: the eigendecomposition, if it was made already.

    Raises:
        ValueError: a penalty is negative, or 0 with no more rows than features; a target column is constant.
    """
    penalties = check_penalties(alphas, moments)
    factor = Factor.of(moments) if factor is None else factor
    rotated = factor.vectors.T @ moments.cross
    inverse, power = factor.inverse(penalties), rotated.square().sum(1)
    explained = (inverse * (2 - factor.eigenvalues * inverse)) @ power
    total = moments.spread.sum()
    residual = (total - explained).clamp(min=(ROUNDING * total).item())
    gcv = moments.count * residual / (moments.count - factor.freedom(penalties)).square()
    best = int(gcv.argmin())
    coef = factor.vectors @ (inverse[best][:, None] * rotated)
    return LinearFit(
        coef,
        moments.y_mean - moments.x_mean @ coef,
        penalties[best].item(),
        tuple((gcv / moments.spread.numel()).tolist()),
    )


def check_penalties(alphas: Sequence[float], moments: Moments) -> Float[Tensor, "penalty"]:
    """The penalties as a tensor; refuse what has no answer."""
    penalties = torch.as_tensor(alphas, dtype=torch.float64, device=moments.gram.device).flatten()
    if not len(penalties) or not bool((penalties >= 0).all()) or not bool(penalties.isfinite().all()):
        raise ValueError(
            f"a ridge probe needs finite penalties of 0 or more, got {penalties.tolist()}; give alphas=[1.0]"
        )
    features = len(moments.gram)
    if bool((penalties == 0).any()) and moments.count <= features + 1:
        raise ValueError(
            f"{moments.count} training rows do not determine {features} coefficients and an intercept without a "
            "penalty; give more prompts or penalties above 0"
        )
    if moments.count < 2:
        raise ValueError(f"a ridge probe needs at least 2 training rows; n_samples = {moments.count}")
    check_varying(moments)
    return penalties


def check_varying(moments: Moments) -> None:
    """Raise if a target column is constant: no score is defined on it."""
    size = moments.count * moments.y_mean.square()
    still = (moments.spread <= ROUNDING * size) | (moments.spread == 0)
    if bool(still.any()):
        raise ValueError(
            f"{int(still.sum())} of {len(still)} target columns are constant over the training rows (first: column "
            f"{int(still.nonzero()[0])}), so that no score is defined; leave them out or give other prompts"
        )
