"""Covariance functions against scikit-learn's, and what every covariance must be."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics.pairwise import laplacian_kernel

from interp.covariance import COVARIANCES, Covariance

THEIRS = {
    "rbf": lambda x, other, length: RBF(length)(x, other),
    "matern12": lambda x, other, length: Matern(length, nu=0.5)(x, other),
    "matern32": lambda x, other, length: Matern(length, nu=1.5)(x, other),
    "laplace": lambda x, other, length: laplacian_kernel(x, other, gamma=1 / length),
}
every_name = pytest.mark.parametrize("name", COVARIANCES)


def points(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_covariance_has_its_counterpart():
    assert list(THEIRS) == list(COVARIANCES)


@every_name
@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    d=st.integers(1, 4),
    lengthscale=st.floats(0.05, 20),
    seed=st.integers(0, 10**6),
)
def test_values_are_scikit_learns(name, rows, columns, d, lengthscale, seed):
    x, other = points(seed, rows, d), points(seed + 1, columns, d)
    expected = torch.from_numpy(np.asarray(THEIRS[name](x.numpy(), other.numpy(), lengthscale)))
    torch.testing.assert_close(Covariance(name, lengthscale)(x, other), expected, rtol=0, atol=1e-8)


@every_name
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 8), d=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_symmetric_with_ones_on_the_diagonal_and_positive(name, n, d, seed):
    K = Covariance(name, 0.7)(points(seed, 2, n, d), points(seed, 2, n, d))
    torch.testing.assert_close(K, K.mT, rtol=0, atol=1e-14)
    assert K.diagonal(dim1=-2, dim2=-1).eq(1).all()
    assert torch.linalg.eigvalsh(K).min() > -1e-12 and K.max() <= 1 and K.min() >= 0


@every_name
def test_a_batch_is_its_prompts_one_by_one(name):
    x, other = points(0, 3, 5, 2), points(1, 3, 4, 2)
    covariance = Covariance(name, 0.4)
    together = covariance(x, other)
    assert together.shape == (3, 5, 4)
    for prompt in range(3):
        torch.testing.assert_close(together[prompt], covariance(x[prompt], other[prompt]), rtol=0, atol=1e-15)


def test_laplace_is_matern12_in_one_column_and_not_in_two():
    x = points(0, 6, 2)
    one = [Covariance(name, 0.5)(x[:, :1], x[:, :1]) for name in ("laplace", "matern12")]
    two = [Covariance(name, 0.5)(x, x) for name in ("laplace", "matern12")]
    torch.testing.assert_close(*one)
    assert (two[0] - two[1]).abs().max() > 0.01


def test_it_prints_and_goes_through_plain_values():
    covariance = Covariance("matern32", 0.25)
    assert str(covariance) == "matern32, ℓ = 0.25" and Covariance(**covariance.to_dict()) == covariance  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("lengthscale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lengthscale_that_is_none_is_refused(lengthscale):
    with pytest.raises(ValueError, match=r"Covariance: lengthscale=\S+ must be positive and finite"):
        replace(Covariance(), lengthscale=lengthscale)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown covariance 'rfb'; known: rbf, matern12, matern32, laplace"):
        Covariance("rfb")
