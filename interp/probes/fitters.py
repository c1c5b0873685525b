"""What is kept of the training batches, and how probes come out of it: moments for ridge, rows for an MLP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from sklearn.base import clone
from torch import Tensor

from interp.probes.estimators import MLPProbe
from interp.probes.moments import Moments
from interp.probes.ridge import Factor, fit_ridge
from interp.probes.weighted import fit_weighted


@runtime_checkable
class Predictor(Protocol):
    """A fitted probe."""

    def predict(self, x: Float[Tensor, "sample feature"]) -> Float[Tensor, "sample column"]: ...


@runtime_checkable
class Fitter(Protocol):
    """Takes in batches of rows, then fits one probe a slice of target columns."""

    def update(self, x: Float[Tensor, "sample feature"], y: Float[Tensor, "sample column"]) -> None: ...

    def fit(self, columns: Sequence[slice]) -> list[Predictor]: ...


@dataclass
class RidgeFitter:
    """Moments of all targets beside one Gram matrix, factorised once; memory does not grow with the rows.

    Args:
        alphas: penalties; relative: in units of the mean eigenvalue of the Gram matrix.
        rows: the number of prompt rows whose features lie side by side, for learned weights of the rows; else None.
    """

    alphas: Sequence[float]
    relative: bool
    rows: int | None = None
    moments: Moments | None = None

    def update(self, x: Float[Tensor, "sample feature"], y: Float[Tensor, "sample column"]) -> None:
        if self.moments is None:
            self.moments = Moments.empty(x.shape[1], y.shape[1], x.device)
        self.moments.update(x, y)

    def fit(self, columns: Sequence[slice]) -> list[Predictor]:
        assert self.moments is not None  # there is at least one batch
        factor = Factor.of(self.moments)
        alphas = [(factor.unit if self.relative else 1.0) * alpha for alpha in self.alphas]
        parts = [self.moments.columns(chosen) for chosen in columns]
        if self.rows is not None:
            return [fit_weighted(part, self.rows, alphas) for part in parts]
        return [fit_ridge(part, alphas, factor) for part in parts]


@dataclass
class MLPFitter:
    """All rows of one hook's features, since a network is trained on them many times: memory grows with the prompts."""

    estimator: MLPProbe
    x: list[Tensor] = field(default_factory=list)
    y: list[Tensor] = field(default_factory=list)

    def update(self, x: Float[Tensor, "sample feature"], y: Float[Tensor, "sample column"]) -> None:
        self.x.append(x.cpu())
        self.y.append(y.cpu())

    def fit(self, columns: Sequence[slice]) -> list[Predictor]:
        x, y = torch.cat(self.x), torch.cat(self.y)
        return [_OnTensors(self._new().fit(x, y[:, chosen])) for chosen in columns]

    def _new(self) -> MLPProbe:
        copy: Any = clone(self.estimator)
        return copy


@dataclass(frozen=True)
class _OnTensors:
    """A scikit-learn estimator on tensors."""

    estimator: Any

    @property
    def converged(self) -> bool:
        return self.estimator.converged_

    def predict(self, x: Float[Tensor, "sample feature"]) -> Float[Tensor, "sample column"]:
        predicted = torch.as_tensor(self.estimator.predict(x), dtype=torch.float64, device=x.device)
        return predicted.view(len(x), -1)


def make_fitter(
    estimator: "str | MLPProbe", alphas: Sequence[float], relative: bool, rows: int | None, seed: int
) -> Callable[[], Fitter]:
    """A new fitter for each hook.

    Raises:
        ValueError: an unknown estimator, or an MLP with learned weights of the rows.
    """
    if estimator == "ridge":
        return lambda: RidgeFitter(alphas, relative, rows)
    if estimator != "mlp" and not isinstance(estimator, MLPProbe):
        raise ValueError(f"unknown estimator {estimator!r}; known: ridge, mlp, or an MLPProbe with your settings")
    if rows is not None:
        raise ValueError(
            "learned weights of the rows are fitted by least squares; take the ridge probe, or another reading"
        )
    chosen = MLPProbe(random_state=seed) if isinstance(estimator, str) else estimator
    return lambda: MLPFitter(chosen)
