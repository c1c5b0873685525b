"""Baselines and extrapolation against scikit-learn, predictions of the row methods against their rows."""

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.neighbors import KNeighborsRegressor

from interp.solvers import (
    EAGLE,
    T3,
    Averaging,
    GDPlusPlus,
    KernelSystem,
    LeastSquares,
    NearestNeighbours,
    Nystrom,
    iterate,
    states,
)
from tests.interp.solvers.cases import kernel, squares

BASELINES = [
    (Averaging(), DummyRegressor(strategy="mean")),
    (NearestNeighbours(), KNeighborsRegressor(1)),
    (NearestNeighbours(3), KNeighborsRegressor(3)),
]


def queries(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=dtype)


@pytest.mark.parametrize(("baseline", "library"), BASELINES, ids=lambda value: str(value))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_baselines(baseline, library, dtype: torch.dtype):
    case, B = squares(), queries(dtype)
    case = LeastSquares(case.A.to(dtype), case.C.to(dtype))
    predicted = baseline.predict(case, B)
    expected = np.stack([library.fit(case.A[i], case.C[i]).predict(B[i]) for i in range(3)])
    assert predicted.dtype == dtype
    assert np.allclose(predicted, expected, rtol=1e-6 if dtype == torch.float32 else 1e-10)


def test_nystrom_extrapolation():
    x = torch.arange(9.0, dtype=torch.float64)[:, None] / 2
    landmarks, unseen = x[::2], x[1::2]
    features = Nystroem(kernel="rbf", gamma=0.5, n_components=len(landmarks)).fit(landmarks)
    whole = torch.exp(-0.5 * (x - x.T) ** 2)
    problem = LeastSquares(whole[None, ::2, ::2], whole[None, ::2, 1::2])
    expected = features.transform(unseen) @ features.transform(unseen).T
    assert np.allclose(Nystrom().extrapolate(problem)[0], expected, atol=1e-10)
    with pytest.raises(ValueError, match=r"symmetric Gram matrix \[batch, n, n\], got \[3, 12, 4\]"):
        Nystrom().extrapolate(squares())
    with pytest.raises(ValueError, match=r"eigenvalue -.* < 0"):
        Nystrom().extrapolate(LeastSquares(-problem.A, problem.C))
    with pytest.raises(ValueError, match="rank=9 must lie between 1 and the 5 landmarks"):
        Nystrom(9).extrapolate(problem)


@pytest.mark.parametrize("solver", [EAGLE(), EAGLE(*T3), GDPlusPlus(-0.2, 0.9)])
def test_rows_predict_and_conserve(solver):
    """D of any query row is −B w, and D − B A⁺ C never changes where C lies in the range of A (MATH §4)."""
    case = squares(noise=0.0)
    B = queries()
    whole = torch.cat([case.A, B], 1)
    labels = torch.cat([case.C, torch.zeros(3, 5, 2).double()], 1)
    solution = torch.linalg.pinv(case.A) @ case.C
    for depth, state in enumerate(states(solver, case, 4)):
        scale = state["D"] - state["B"] @ torch.linalg.pinv(state["A"]) @ state["C"]
        assert torch.allclose(scale, -solution, atol=1e-9)
        assert torch.allclose(labels[:, 12:], -B @ iterate(solver, case, max(depth, 1))[depth], atol=1e-10)
        A, C = whole[:, :12], labels[:, :12]
        unit = torch.linalg.matrix_norm(A, 2)[:, None, None] ** 2 if isinstance(solver, EAGLE) else 1
        labels = labels - solver.gamma / unit * whole @ A.mT @ C
        whole = whole + solver.eta / unit * whole @ A.mT @ A


def test_bad_queries_and_problems():
    case = squares()
    for baseline in (Averaging(), NearestNeighbours()):
        with pytest.raises(ValueError, match=r"queries must be \[3, query, 4\] of torch.float64, got \[3, 5, 3\]"):
            baseline.predict(case, queries()[:, :, :3])
        system = kernel()
        with pytest.raises(ValueError, match="solves a LeastSquares, got a KernelSystem"):
            baseline.predict(KernelSystem(system.K, system.y, 0.1), queries())
    with pytest.raises(ValueError, match="neighbours=13 must lie between 1 and the 12 rows"):
        NearestNeighbours(13).predict(case, queries())
