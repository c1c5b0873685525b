"""A batch at once beside scipy or scikit-learn in a loop: 256 problems of 64 × 16, float64, one thread, equal errors.

Each side starts from the bare arrays and checks its input; kernel systems are the 64 × 64 Gram matrices of the same
inputs. Printed and kept in extra_info: median ratio of paired runs (library / batch) and both largest relative errors.
"""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

from benchmarks.paired import paired_ratio
from interp.solvers import (
    ClosedForm,
    ConjugateGradient,
    KernelSystem,
    LeastSquares,
    NearestNeighbours,
    Preconditioned,
    iterate,
    jacobi,
)

COUNT, N, D, LAM, STEPS, ROUNDS = 256, 64, 16, 0.5, 16, 7


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


A, C, B = draw(COUNT, N, D, seed=0), draw(COUNT, N, 1, seed=1), draw(COUNT, N, D, seed=2)
K = torch.exp(-(torch.cdist(A, A) ** 2) / (2 * D))


def last(solver, problem, steps: int = 1) -> torch.Tensor:
    return iterate(solver, problem, steps)[-1]


def loop(one: Callable[[np.ndarray, np.ndarray, int], np.ndarray], left: torch.Tensor) -> Callable[[], np.ndarray]:
    arrays, labels = left.numpy(), C.numpy()
    return lambda: np.stack([one(arrays[i], labels[i], i).reshape(-1, 1) for i in range(COUNT)])


def scipy_cg(a: np.ndarray, c: np.ndarray, _: int) -> np.ndarray:
    return scipy.sparse.linalg.cg(a.T @ a, a.T @ c[:, 0], rtol=0, maxiter=STEPS)[0]


def scipy_pcg(a: np.ndarray, c: np.ndarray, _: int) -> np.ndarray:
    G = a.T @ a
    return scipy.sparse.linalg.cg(G, a.T @ c[:, 0], rtol=0, maxiter=STEPS, M=np.diag(1 / np.diag(G)))[0]


LEAST_SQUARES = torch.linalg.lstsq(A, C).solution
RIDGE = torch.linalg.solve(A.mT @ A + LAM * torch.eye(D), A.mT @ C)
KERNEL = torch.linalg.solve(K + LAM * torch.eye(N), C)
NEAREST = torch.take_along_dim(C, torch.cdist(B, A).argmin(2, keepdim=True), 1)

CASES = {
    "least squares, scipy lstsq": (
        lambda: last(ClosedForm(), LeastSquares(A, C)),
        loop(lambda a, c, _: scipy.linalg.lstsq(a, c)[0], A), LEAST_SQUARES,
    ),
    "least squares, scikit-learn": (
        lambda: last(ClosedForm(), LeastSquares(A, C)),
        loop(lambda a, c, _: LinearRegression(fit_intercept=False).fit(a, c).coef_, A), LEAST_SQUARES,
    ),
    "ridge, scikit-learn": (
        lambda: last(ClosedForm(), LeastSquares(A, C, LAM)),
        loop(lambda a, c, _: Ridge(LAM, fit_intercept=False).fit(a, c).coef_, A), RIDGE,
    ),
    "conjugate gradients, scipy": (
        lambda: last(ConjugateGradient(), LeastSquares(A, C), STEPS), loop(scipy_cg, A), LEAST_SQUARES,
    ),
    "PCG, scipy": (
        lambda: last(Preconditioned(ConjugateGradient(), jacobi), LeastSquares(A, C), STEPS),
        loop(scipy_pcg, A), LEAST_SQUARES,
    ),
    "kernel ridge, scikit-learn": (
        lambda: last(ClosedForm(), KernelSystem(K, C, LAM)),
        loop(lambda k, c, _: KernelRidge(alpha=LAM, kernel="precomputed").fit(k, c).dual_coef_, K), KERNEL,
    ),
    "nearest neighbour, scikit-learn": (
        lambda: NearestNeighbours().predict(LeastSquares(A, C), B),
        loop(lambda a, c, i: KNeighborsRegressor(1).fit(a, c).predict(B[i]), A), NEAREST,
    ),
}  # fmt: skip


def largest_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((found - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max())


@pytest.mark.parametrize("name", CASES)
def test_batch_against_a_loop(benchmark, name: str):
    batched, looped, exact = CASES[name]
    with threadpool_limits(1):
        ratio = paired_ratio(looped, batched, ROUNDS)
        errors = [largest_error(batched(), exact), largest_error(torch.as_tensor(looped()), exact)]
        benchmark.pedantic(batched, rounds=ROUNDS, warmup_rounds=1)
    assert max(errors) < 1e-9
    benchmark.extra_info |= {"library_over_batch": ratio, "batch_error": errors[0], "library_error": errors[1]}
    print(f"\n{name}: loop {ratio:.1f} × slower; largest error {errors[0]:.1e} (batch), {errors[1]:.1e} (library)")
