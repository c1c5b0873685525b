import pytest
import torch

from interp.solvers import KernelSystem, LeastSquares
from tests.interp.solvers.cases import gram, kernel, squares


@pytest.mark.parametrize("lam", [0.0, 0.4])
def test_gradient_is_the_derivative(lam: float):
    case = squares(lam=lam)
    w = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = 0.5 * (case.A @ w - case.C).square().sum() + 0.5 * lam * w.square().sum()
    assert torch.allclose(torch.autograd.grad(loss, w)[0], case.gradient(w.detach()), atol=1e-12)


def test_spectrum_leaves_out_the_null_space():
    smallest, largest = squares(kappa=5.0, rank=2).spectrum
    assert torch.allclose(smallest, torch.full_like(smallest, 1 / 25), atol=1e-10)
    assert torch.allclose(largest, torch.ones_like(largest), atol=1e-10)


def test_singular_kernel_without_ridge_needs_labels_in_its_range():
    K = torch.ones(1, 3, 3, dtype=torch.float64)
    y = torch.tensor([[[2.0], [2.0], [2.0]]], dtype=torch.float64)
    assert torch.equal(KernelSystem(K, y, 0.0).moment, y)
    y[0, 0] = 1
    with pytest.raises(ValueError, match="y lies outside its range, so lam=0 has no solution"):
        KernelSystem(K, y, 0.0)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.int64, torch.bfloat16])
def test_only_real_floating_matrices(dtype: torch.dtype):
    case, system = squares(), kernel()
    with pytest.raises(ValueError, match="LeastSquares: A and C must both be float32 or both float64"):
        LeastSquares(case.A.to(dtype), case.C.to(dtype))
    with pytest.raises(ValueError, match="KernelSystem: K and y must both be float32 or both float64"):
        KernelSystem(system.K.to(dtype), system.y.to(dtype), 0.1)


def test_bad_least_squares():
    case = squares()
    with pytest.raises(ValueError, match=r"A must be \[batch, n, d\] and C \[batch, n, out\].*got \[3, 12, 4\]"):
        LeastSquares(case.A, case.C[:, :3])
    with pytest.raises(ValueError, match="none empty"):
        LeastSquares(case.A[:0], case.C[:0])
    with pytest.raises(ValueError, match=r"float64 and torch.float32"):
        LeastSquares(case.A, case.C.float())
    with pytest.raises(ValueError, match="holds NaN or inf"):
        LeastSquares(case.A / 0, case.C)
    for lam in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"lam={lam} must be finite and at least 0"):
            LeastSquares(case.A, case.C, lam)
    with pytest.raises(ValueError, match="matrix of prompt 1 is 0"):
        _ = LeastSquares(case.A * torch.tensor([1.0, 0, 1])[:, None, None], case.C).spectrum


def test_bad_kernel_systems():
    system = kernel()
    with pytest.raises(ValueError, match=r"K must be symmetric \[batch, n, n\]"):
        KernelSystem(system.K.tril(), system.y, 0.1)
    with pytest.raises(ValueError, match=r"K must be symmetric.*got \[3, 7, 4\]"):
        KernelSystem(system.K[:, :, :4], system.y, 0.1)
    with pytest.raises(ValueError, match=r"lam=-1.0 must be finite"):
        KernelSystem(system.K, system.y, -1.0)
    with pytest.raises(ValueError, match=r"KernelSystem: eigenvalue -.* < 0; give a positive"):
        KernelSystem(-system.K, system.y, 0.1)
    with pytest.raises(ValueError, match="give a positive semi-definite matrix"):
        _ = KernelSystem(gram().A - torch.eye(7), system.y, 0.0).spectrum
