"""Linear probes with learned position weights, fitted by alternating least squares on the moments alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.probes.moments import Moments
from interp.probes.ridge import ROUNDING, LinearFit, check_penalties

SEARCH = (10, 1e-5)  # most steps and relative decrease at which to stop, while penalties are compared
FINAL = (200, 1e-10)  # the same at the chosen penalty


@dataclass(frozen=True)
class _Fit:
    """Where an alternation ends: position weights a of norm 1, W, squared error, objective, df of W at fixed a."""

    a: Float[Tensor, "row"]
    W: Float[Tensor, "width column"]
    residual: float
    objective: float
    freedom: float


def fit_weighted(moments: Moments, rows: int, alphas: Sequence[float]) -> LinearFit:
    """y ≈ Σ_t a_t z_t W + b: one number a_t a row, one matrix W for all, from the moments of all rows side by side.

    Minimises ‖y − ŷ‖² + α ‖a‖² ‖W‖² by alternating two ridge solutions, W at fixed a and a at fixed W; each step
    lowers it, and only ‖a‖ ‖W‖ matters, so ‖a‖ = 1 is reported. The problem has local minima: the penalties are visited
    from the largest down, the first from uniform weights and from the single row that explains most, each further one
    from the last a. The penalty is chosen by GCV with df = 1 + df(W at fixed a) + rows − 1, and the best of the three
    starts at that penalty, alternated to 1e-10, is kept.

    Args:
        moments: of x = (z_1, …, z_rows) flattened, rows · width features.

    Raises:
        ValueError: as `fit_ridge`.
    """
    penalties = check_penalties(alphas, moments).tolist()
    problem = _Problem.of(moments, rows)
    values, found = [float("inf")] * len(penalties), {}
    starts = problem.starts(max(penalties))
    for index in sorted(range(len(penalties)), key=lambda i: -penalties[i]):
        fit = problem.best(penalties[index], starts, *SEARCH)
        values[index], found[index], starts = problem.gcv(fit, moments.count), fit, [fit.a]
    best = min(found, key=lambda i: values[i])
    fit = problem.best(penalties[best], [found[best].a, *problem.starts(penalties[best])], *FINAL)
    coef = torch.einsum("t,ic->tic", fit.a, fit.W).flatten(0, 1)
    return LinearFit(coef, moments.y_mean - moments.x_mean @ coef, penalties[best], tuple(values), fit.a)


@dataclass(frozen=True)
class _Problem:
    """The moments by row: gram[t, :, s, :] = Σ z_t z_sᵀ, cross[t] = Σ z_t yᵀ, and Σ y²."""

    gram: Float[Tensor, "row width row width"]
    cross: Float[Tensor, "row width column"]
    total: float

    @classmethod
    def of(cls, moments: Moments, rows: int) -> "_Problem":
        width = len(moments.gram) // rows
        cross = moments.cross.reshape(rows, width, -1)
        return cls(moments.gram.view(rows, width, rows, width), cross, moments.spread.sum().item())

    def starts(self, alpha: float) -> list[Float[Tensor, "row"]]:
        """Uniform weights, and the one row that explains most by itself."""
        rows = range(len(self.cross))
        alone = [(self.cross[t] * _solve(self.gram[t, :, t], self.cross[t], alpha)).sum() for t in rows]
        explained = torch.stack(alone)
        single = torch.zeros_like(explained)
        single[explained.argmax()] = 1
        return [torch.full_like(explained, len(explained) ** -0.5), single]

    def best(self, alpha: float, starts: list[Float[Tensor, "row"]], most: int, tolerance: float) -> _Fit:
        """The lowest of the minima that the starts lead to."""
        return min((self._alternate(alpha, a, most, tolerance) for a in starts), key=lambda fit: fit.objective)

    def gcv(self, fit: _Fit, count: int) -> float:
        left = max(count - fit.freedom - len(fit.a), 1e-3)
        return count * max(fit.residual, ROUNDING * self.total) / left**2 / self.cross.shape[2]

    def _alternate(self, alpha: float, a: Float[Tensor, "row"], most: int, tolerance: float) -> _Fit:
        fit = self._at(a, alpha)
        for _ in range(most):
            new = self._at(self._reweigh(fit.W, alpha), alpha)
            gain, fit = fit.objective - new.objective, new if new.objective < fit.objective else fit
            if gain <= tolerance * abs(fit.objective):
                break
        return fit

    def _at(self, a: Float[Tensor, "row"], alpha: float) -> _Fit:
        """The best W at fixed a."""
        pooled = torch.einsum("t,tij->ij", a, torch.einsum("tisj,s->tij", self.gram, a))
        target = torch.einsum("t,tic->ic", a, self.cross)
        values, vectors = torch.linalg.eigh(pooled)
        values = values.clamp(min=0)
        inverse = _inverse(values + alpha)
        W = vectors @ (inverse[:, None] * (vectors.T @ target))
        residual = self.total + ((W * (pooled @ W)).sum() - 2 * (W * target).sum()).item()
        objective = residual + alpha * W.square().sum().item()
        return _Fit(a, W, residual, objective, (values * inverse).sum().item())

    def _reweigh(self, W: Float[Tensor, "width column"], alpha: float) -> Float[Tensor, "row"]:
        """The best a at fixed W, scaled to norm 1."""
        scores = torch.einsum("tisj,ij->ts", self.gram, W @ W.T)
        pull = torch.einsum("tic,ic->t", self.cross, W)
        a = _solve(scores, pull[:, None], alpha * W.square().sum().item())[:, 0]
        size = a.norm()
        return a / size if size > 0 else torch.full_like(a, len(a) ** -0.5)


def _solve(matrix: Float[Tensor, "n n"], right: Float[Tensor, "n column"], alpha: float) -> Float[Tensor, "n column"]:
    """(M + αI)⁻¹ right, least-norm where M + αI is singular to rounding."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ (_inverse(values.clamp(min=0) + alpha)[:, None] * (vectors.T @ right))


def _inverse(values: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return torch.where(values > ROUNDING * values.max(), 1 / values, 0.0)
