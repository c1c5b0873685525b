"""Ridge from moments against scikit-learn's Ridge and RidgeCV, and against the definitions written out."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.utils.estimator_checks import check_estimator

from interp.probes import MLPProbe, Moments, RidgeProbe
from interp.probes.ridge import Factor, fit_ridge
from interp.probes.weighted import fit_weighted

ALPHAS = np.logspace(-3, 3, 20)


def data(rows: int = 300, features: int = 12, columns: int = 5, noise: float = 1.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)) @ rng.normal(size=(features, features)) + 100 * rng.normal(size=features)
    return X, X @ rng.normal(size=(features, columns)) + noise * rng.normal(size=(rows, columns)) - 7


@pytest.mark.parametrize(("rows", "features"), [(300, 12), (2000, 30)])
def test_coefficients_penalty_and_score_are_those_of_ridge_cv(rows: int, features: int):
    X, y = data(rows, features, noise=20.0)
    ours, theirs = RidgeProbe(ALPHAS).fit(X, y), RidgeCV(ALPHAS).fit(X, y)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-9)


def test_with_more_features_than_rows_the_penalty_is_at_most_a_neighbour_of_the_leave_one_out_one():
    X, y = data(40, 60, noise=20.0)
    ours, theirs = RidgeProbe(ALPHAS).fit(X, y), RidgeCV(ALPHAS).fit(X, y)
    assert abs(np.log(ours.alpha_ / theirs.alpha_)) < 1.01 * np.log(ALPHAS[1] / ALPHAS[0])
    same = RidgeProbe([theirs.alpha_]).fit(X, y)
    np.testing.assert_allclose(same.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e3])
def test_each_penalty_is_ridge(alpha: float):
    X, y = data()
    ours, theirs = RidgeProbe([alpha]).fit(X, y[:, 0]), Ridge(alpha).fit(X, y[:, 0])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7)
    assert ours.coef_.shape == (12,) and ours.intercept_ == pytest.approx(theirs.intercept_)


def test_no_penalty_is_least_squares_of_least_norm():
    X, y = data()
    X = np.hstack([X, X[:, :3] - X[:, 3:6]])  # rank 12 of 15
    centred = X - X.mean(0)
    expected = np.linalg.pinv(centred, rcond=1e-8) @ (y - y.mean(0))
    np.testing.assert_allclose(RidgeProbe([0.0]).fit(X, y).coef_.T, expected, rtol=1e-5, atol=1e-7)


def test_gcv_is_its_definition():
    X, y = (torch.from_numpy(values) for values in data(60))
    found = fit_ridge(Moments.of(X, y), ALPHAS.tolist()).gcv
    X, y = X - X.mean(0), y - y.mean(0)
    for alpha, value in zip(ALPHAS, found, strict=True):
        hat = X @ torch.linalg.solve(X.T @ X + alpha * torch.eye(12, dtype=torch.float64), X.T) + 1 / 60
        expected = 60 * (y - hat @ y).square().sum() / (60 - hat.trace()) ** 2 / 5
        assert value == pytest.approx(expected.item(), rel=1e-9)


def test_batches_give_what_all_rows_give_whatever_their_mean():
    X, y = (torch.from_numpy(values) for values in data())
    whole, parts = Moments.of(X + 1e5, y), Moments.empty(12, 5)
    for rows in torch.arange(300).split(37):
        parts.update(X[rows] + 1e5, y[rows])
    parts.update(X[:0], y[:0])
    for name in ("x_mean", "y_mean", "gram", "cross", "spread"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-6)
    torch.testing.assert_close(whole.gram, torch.cov(X.T) * 299, rtol=1e-6, atol=1e-6)
    probe = RidgeProbe(ALPHAS)
    for start in range(0, 300, 100):
        probe.partial_fit(X[start : start + 100], y[start : start + 100])
    np.testing.assert_allclose(probe.coef_, RidgeProbe(ALPHAS).fit(X, y).coef_, rtol=1e-8)


def test_constant_features_are_not_fitted_in_their_rounding():
    _, y = data()
    still = 1e3 + 1e-12 * np.random.default_rng(1).normal(
        size=(300, 400)
    )  # more features than rows, and no penalty seen
    probe = RidgeProbe([1e-10, 1.0], relative=True).fit(still, y)
    assert np.abs(probe.coef_).max() == 0
    np.testing.assert_allclose(probe.intercept_, y.mean(0))


def test_targets_share_a_factor():
    X, y = (torch.from_numpy(values) for values in data())
    moments = Moments.of(X, y)
    factor = Factor.of(moments)
    for chosen in (slice(0, 2), slice(2, 5)):
        alone = fit_ridge(Moments.of(X, y[:, chosen]), ALPHAS.tolist())
        torch.testing.assert_close(fit_ridge(moments.columns(chosen), ALPHAS.tolist(), factor).coef, alone.coef)


def test_relative_penalties_do_not_see_the_scale():
    X, y = data()
    first, second = (RidgeProbe(ALPHAS, relative=True).fit(scale * X, y) for scale in (1.0, 1e4))
    np.testing.assert_allclose(first.coef_, 1e4 * second.coef_, rtol=1e-7)
    assert second.alpha_ == pytest.approx(1e8 * first.alpha_)


def test_learned_position_weights_find_the_planted_ones():
    generator = torch.Generator().manual_seed(0)
    rows, width, columns = 6, 4, 3
    z = torch.randn(3000, rows, width, generator=generator, dtype=torch.float64)
    a = torch.tensor([0.0, 2.0, -1.0, 0.0, 0.5, 0.0], dtype=torch.float64)
    W = torch.randn(width, columns, generator=generator, dtype=torch.float64)
    y = torch.einsum("bti,t,ic->bc", z, a, W) + 3
    y = y + 0.1 * torch.randn(y.shape, generator=generator, dtype=torch.float64)
    found = fit_weighted(Moments.of(z.flatten(1), y), rows, [1e-6, 1e-2, 1e4])
    assert found.positions is not None
    assert (found.positions @ a / a.norm()).abs() > 0.9999 and found.positions.norm() == pytest.approx(1)
    torch.testing.assert_close(
        found.coef.view(rows, width, columns), torch.einsum("t,ic->tic", a, W), atol=0.02, rtol=0
    )
    residual = (y - found.predict(z.flatten(1))).square().mean()
    assert residual == pytest.approx(0.01, rel=0.1)


def test_learned_weights_are_a_stationary_point_of_the_penalised_error():
    X, y = (torch.from_numpy(values) for values in data(200, 12, 2, noise=30.0))
    found = fit_weighted(Moments.of(X, y), 3, [5.0])
    x, y = (X - X.mean(0)).view(200, 3, 4), y - y.mean(0)
    assert found.positions is not None
    a = found.positions.clone().requires_grad_()
    W = torch.einsum("tic,t->ic", found.coef.view(3, 4, 2), found.positions).requires_grad_()
    loss = (y - torch.einsum("bti,t,ic->bc", x, a, W)).square().sum() + 5 * a.square().sum() * W.square().sum()
    for gradient in torch.autograd.grad(loss, (a, W)):
        assert gradient.norm() < 1e-4 * loss


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_accepts_the_estimators():
    check_estimator(RidgeProbe())
    assert RidgeProbe(ALPHAS, relative=True).get_params() == {"alphas": ALPHAS, "relative": True}


def test_mlp_probe_reads_a_product_that_ridge_cannot():
    rng = np.random.default_rng(0)
    X = 3 + 10 * rng.normal(size=(2000, 2))
    y = (X[:, 0] - 3) * (X[:, 1] - 3)
    probe = MLPProbe(max_iter=150).fit(X[:1500], y[:1500])
    assert probe.score(X[1500:], y[1500:]) > 0.9 > 0.1 > RidgeProbe().fit(X, y).score(X, y)
    assert probe.converged_ == (probe.n_iter_ < 150)
    short = MLPProbe(max_iter=2).fit(X, y)
    assert not short.converged_


def test_bad_input():
    X, y = data(10, 12)
    with pytest.raises(ValueError, match="10 training rows do not determine 12 coefficients"):
        RidgeProbe([0.0, 1.0]).fit(X, y)
    with pytest.raises(ValueError, match="finite penalties of 0 or more"):
        RidgeProbe([-1.0]).fit(X, y)
    for constant in (7.0, 0.0, 1e-9 / 3):
        y[:, 3] = constant
        for probe in (RidgeProbe(), MLPProbe()):
            with pytest.raises(ValueError, match="constant"):
                probe.fit(X, y)
    with pytest.raises(ValueError, match="do not fit 12 features and 5 target columns"):
        Moments.of(torch.from_numpy(X), torch.from_numpy(y)).update(torch.zeros(3, 11), torch.zeros(3, 5))
    with pytest.raises(ValueError, match="at least 2 training rows"):
        fit_ridge(Moments.of(torch.ones(1, 2), torch.ones(1, 1)), [1.0])
