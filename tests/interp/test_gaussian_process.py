"""The exact posterior against scikit-learn's Gaussian processes and kernel ridge regression."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel

from interp.covariance import COVARIANCES, Covariance
from interp.gaussian_process import kernel_system, posterior
from interp.solvers import ClosedForm, iterate

KERNELS = {
    "rbf": lambda length: RBF(length, "fixed"),
    "matern12": lambda length: Matern(length, "fixed", nu=0.5),
    "matern32": lambda length: Matern(length, "fixed", nu=1.5),
}


def draw(seed: int, *shape: int) -> torch.Tensor:
    return 2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


sizes = given(
    n=st.integers(1, 12),
    d=st.integers(1, 3),
    queries=st.integers(1, 4),
    out=st.integers(1, 2),
    lengthscale=st.floats(0.1, 2),
    lam=st.floats(1e-3, 10),
    seed=st.integers(0, 10**6),
)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=15, deadline=None)
@sizes
def test_mean_and_variance_are_those_of_gaussian_process_regressor(name, n, d, queries, out, lengthscale, lam, seed):
    x, y, q = draw(seed, n, d), draw(seed + 1, n, out), draw(seed + 2, queries, d)
    theirs = GaussianProcessRegressor(KERNELS[name](lengthscale), alpha=lam, optimizer=None).fit(x.numpy(), y.numpy())
    mean, deviation = theirs.predict(q.numpy(), return_std=True)
    ours = posterior(Covariance(name, lengthscale), lam, x[None], y[None], q[None])
    deviation = deviation.reshape(queries, -1)[:, 0]
    np.testing.assert_allclose(ours.mean[0].numpy(), mean.reshape(queries, out), rtol=0, atol=1e-8)
    np.testing.assert_allclose(ours.variance[0].numpy(), deviation**2, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", COVARIANCES)
@settings(max_examples=15, deadline=None)
@sizes
def test_the_mean_is_kernel_ridge_regression(name, n, d, queries, out, lengthscale, lam, seed):
    x, y, q = draw(seed, n, d).numpy(), draw(seed + 1, n, out).numpy(), draw(seed + 2, queries, d).numpy()

    def gram(left, right):
        if name == "laplace":
            return laplacian_kernel(left, right, gamma=1 / lengthscale)
        return KERNELS[name](lengthscale)(left, right)

    theirs = KernelRidge(alpha=lam, kernel="precomputed").fit(gram(x, x), y)
    covariance = Covariance(name, lengthscale)
    ours = posterior(covariance, lam, *(torch.from_numpy(part)[None] for part in (x, y, q)))
    np.testing.assert_allclose(ours.mean[0].numpy(), theirs.predict(gram(q, x)), rtol=0, atol=1e-8)
    alpha = iterate(
        ClosedForm(), kernel_system(covariance, lam, torch.from_numpy(x)[None], torch.from_numpy(y)[None]), 1
    )
    np.testing.assert_allclose(alpha[-1][0].numpy(), theirs.dual_coef_, rtol=0, atol=1e-8)


def test_variance_does_not_depend_on_labels_falls_with_points_and_stays_in_range():
    covariance, x, y, q = Covariance("rbf", 0.4), draw(0, 3, 10, 1), draw(1, 3, 10, 1), draw(2, 3, 5, 1)
    few, many = (posterior(covariance, 0.1, x[:, :n], y[:, :n], q).variance for n in (4, 10))
    assert torch.equal(many, posterior(covariance, 0.1, x, 5 * y, q).variance)
    assert (many <= few + 1e-12).all() and (many >= 0).all() and (few <= 1).all()


def test_without_noise_the_points_are_interpolated():
    x, y = draw(0, 2, 5, 2), draw(1, 2, 5, 1)
    found = posterior(Covariance("matern12", 0.5), 0.0, x, y, x)
    torch.testing.assert_close(found.mean, y, rtol=0, atol=1e-9)
    assert found.variance.max() < 1e-9


def test_coincident_points_of_one_label_without_noise_count_once():
    x, y = torch.tensor([[[0.1], [0.1], [0.6]]]).double(), torch.tensor([[[1.0], [1.0], [-0.5]]]).double()
    covariance, q = Covariance("rbf", 0.3), torch.tensor([[[0.3]]]).double()
    once = posterior(covariance, 0.0, x[:, 1:], y[:, 1:], q)
    torch.testing.assert_close(posterior(covariance, 0.0, x, y, q).mean, once.mean, rtol=0, atol=1e-9)


def test_coincident_points_of_two_labels_need_noise():
    x, y = torch.tensor([[[0.1], [0.1], [0.6]]]).double(), torch.tensor([[[1.0], [2.0], [-0.5]]]).double()
    with pytest.raises(ValueError, match=r"K is singular and y lies outside its range, so lam=0 has no solution"):
        posterior(Covariance("rbf", 0.3), 0.0, x, y, x)
    found = posterior(Covariance("rbf", 0.3), 1e-6, x, y, x[:, :1])
    assert found.mean.item() == pytest.approx(1.5, abs=1e-3)


@pytest.mark.parametrize("lam", [-0.1, float("inf"), float("nan")])
def test_a_noise_variance_that_is_none_is_refused(lam):
    with pytest.raises(ValueError, match=r"KernelSystem: lam=\S+ must be finite and at least 0"):
        posterior(Covariance(), lam, draw(0, 1, 3, 1), draw(1, 1, 3, 1), draw(2, 1, 1, 1))
