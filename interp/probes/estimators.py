"""Probes in scikit-learn's manners: RidgeProbe on arrays or batches, MLPProbe as a small multilayer perceptron."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from interp.probes.moments import Moments
from interp.probes.ridge import Factor, fit_ridge


class RidgeProbe(RegressorMixin, BaseEstimator):
    """Ridge regression with an intercept and the penalty chosen by generalised cross-validation (see `fit_ridge`).

    Args:
        alphas: penalties, as in scikit-learn's RidgeCV.
        relative: the penalties are in units of the mean eigenvalue of the centred Gram matrix.

    Fitted: `coef_` [column, feature] (or [feature] for a one-dimensional y), `intercept_`, `alpha_`, `gcv_` a penalty,
    `n_features_in_`, `moments_`. `partial_fit` takes in one batch after another; memory does not grow with them.
    """

    coef_: Any
    intercept_: Any
    alpha_: float
    gcv_: Any
    moments_: Moments
    n_features_in_: int

    def __init__(self, alphas: Any = (0.1, 1.0, 10.0), *, relative: Any = False) -> None:
        self.alphas = alphas
        self.relative = relative

    def fit(self, X: Any, y: Any) -> "RidgeProbe":
        """Fit on rows X [row, feature] and targets y [row] or [row, column]."""
        X, y = validate_data(self, _array(X), _array(y), multi_output=True, y_numeric=True, dtype=np.float64)
        self._flat = y.ndim == 1
        return self._solve(Moments.of(*_tensors(X, y)))

    def partial_fit(self, X: Any, y: Any) -> "RidgeProbe":
        """Take in one batch more; the coefficients are those of all batches so far, once two rows are in."""
        first = not hasattr(self, "moments_")
        X, y = validate_data(
            self, _array(X), _array(y), reset=first, multi_output=True, y_numeric=True, dtype=np.float64
        )
        rows = _tensors(X, y)
        self._flat = y.ndim == 1
        return self._solve(Moments.of(*rows) if first else self.moments_.update(*rows))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _solve(self, moments: Moments) -> "RidgeProbe":
        self.moments_ = moments
        factor = Factor.of(moments)
        unit = factor.unit if self.relative else 1.0
        found = fit_ridge(moments, [unit * alpha for alpha in np.atleast_1d(self.alphas)], factor)
        self.coef_, self.intercept_ = found.coef.T.numpy(), found.intercept.numpy()
        if self._flat:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        self.alpha_, self.gcv_ = found.alpha, np.array(found.gcv)
        return self

    def predict(self, X: Any) -> Any:
        """ŷ [row] or [row, column]."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, _array(X), reset=False, dtype=np.float64)
        return X @ self.coef_.T + self.intercept_


class MLPProbe(RegressorMixin, BaseEstimator):
    """scikit-learn's MLPRegressor on standardised features and targets, small, with early stopping.

    Args:
        hidden: units of each hidden layer.     alpha: L2 penalty.
        max_iter: most epochs.                  random_state: seed of weights, order and validation rows.

    Fitted: `network_`, the means and scales, `n_iter_`, `converged_` (False where `max_iter` was reached).
    """

    def __init__(
        self, hidden: Sequence[int] = (64,), *, alpha: float = 1e-4, max_iter: int = 200, random_state: int = 0
    ) -> None:
        self.hidden = hidden
        self.alpha = alpha
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "MLPProbe":
        """Fit on rows X [row, feature] and targets y [row] or [row, column]."""
        X, y = validate_data(self, _array(X), _array(y), multi_output=True, y_numeric=True, dtype=np.float64)
        self.x_mean_, self.x_scale_ = X.mean(0), _scale(X)
        self.y_mean_, self.y_scale_ = y.mean(0), _scale(y)
        if (y.std(0) == 0).any():
            raise ValueError("a target column is constant over the training rows, so that no score is defined")
        self.network_ = MLPRegressor(
            hidden_layer_sizes=tuple(self.hidden),
            alpha=self.alpha,
            max_iter=self.max_iter,
            early_stopping=True,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said in `converged_`
            self.network_.fit((X - self.x_mean_) / self.x_scale_, (y - self.y_mean_) / self.y_scale_)
        self.n_iter_ = self.network_.n_iter_
        self.converged_ = self.n_iter_ < self.max_iter
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any) -> Any:
        """ŷ [row] or [row, column]."""
        check_is_fitted(self, "network_")
        X = validate_data(self, _array(X), reset=False, dtype=np.float64)
        return self.network_.predict((X - self.x_mean_) / self.x_scale_) * self.y_scale_ + self.y_mean_


def _tensors(X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Both [row, width] in float64; copied where the array is read-only, which torch does not know."""
    arrays = (np.require(values, np.float64, "W") for values in (X, y.reshape(len(y), -1)))
    first, second = (torch.from_numpy(values) for values in arrays)
    return first, second


def _scale(values: Any) -> Any:
    scale = values.std(0)
    return np.where(scale > 0, scale, 1.0)


def _array(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
