import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.solvers import ConjugateGradient, GradientDescent, LeastSquares, NewtonSchulz, iterate
from models.prompts import LogUniformSpectrum

SOLVERS = {
    "gradient descent": GradientDescent(),
    "conjugate gradients": ConjugateGradient(),
    "Newton–Schulz": NewtonSchulz(),
}


def problem(seed: int = 0, kappa: float = 5.0, rank: int | None = None) -> LeastSquares:
    prompts = LogUniformSpectrum(n=9, d=4, n_query=1, d_out=2, kappa=kappa, rank=rank).sample(3, seed=seed)
    return LeastSquares(prompts.A, prompts.C)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("rank", [None, 2])
def test_converges_to_least_squares_of_least_norm(name: str, rank: int | None):
    case = problem(rank=rank)
    steps = 12 if name == "Newton–Schulz" else 400
    w = iterate(SOLVERS[name], case, steps)
    assert w.shape == (steps + 1, 3, 4, 2)
    expected = torch.linalg.pinv(case.A, rtol=1e-10) @ case.C
    assert torch.allclose(w[-1], expected, atol=1e-9)


@given(kappa=st.floats(1.5, 50), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_residual_polynomials(kappa: float, seed: int):
    """The error on an eigenvalue g after k steps: (1 − ηg)^k for descent, (1 − g/λ_max)^(2^k) for Newton–Schulz."""
    case = problem(seed, kappa)
    g, U = torch.linalg.eigh(case.G)
    smallest, largest = case.spectrum
    solution = torch.linalg.lstsq(case.A, case.C).solution
    for solver, residual in (
        (GradientDescent(), lambda k: (1 - 2 * g / (smallest + largest)[:, None]) ** k),
        (NewtonSchulz(), lambda k: (1 - g / largest[:, None]) ** (2**k)),
    ):
        for k, w in enumerate(iterate(solver, case, 4)):
            error = U * residual(k)[:, None, :] @ U.mT @ solution
            if k or isinstance(solver, GradientDescent):
                assert torch.allclose(solution - w, error, atol=1e-8)


def test_conjugate_gradients_against_scipy():
    case = problem(kappa=30.0)
    trajectory = iterate(ConjugateGradient(), case, 3)
    for prompt in range(3):
        for column in range(2):
            seen: list[np.ndarray] = []
            scipy.sparse.linalg.cg(
                case.G[prompt].numpy(), case.moment[prompt, :, column].numpy(), rtol=0, maxiter=3,
                callback=lambda x, seen=seen: seen.append(x.copy()),
            )  # fmt: skip
            assert np.allclose(trajectory[1:, prompt, :, column].numpy(), np.stack(seen), atol=1e-12)


def test_conjugate_gradients_end_at_the_number_of_eigenvalues():
    case = problem(kappa=100.0)
    w = iterate(ConjugateGradient(), case, 4)[-1]
    assert torch.allclose(w, torch.linalg.lstsq(case.A, case.C).solution, atol=1e-8)


def test_gradient_is_the_derivative():
    case = problem()
    w = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = 0.5 * (case.A @ w - case.C).square().sum()
    assert torch.allclose(torch.autograd.grad(loss, w)[0], case.gradient(w.detach()), atol=1e-12)


def test_bad_input_is_one_sentence():
    case = problem()
    with pytest.raises(ValueError, match="steps=0"):
        iterate(GradientDescent(), case, 0)
    for step in (-0.1, 2.1):
        with pytest.raises(ValueError, match=r"diverges or stands still.*2/λ_max = 2"):
            iterate(GradientDescent(step), case, 1)
    with pytest.raises(ValueError, match="must be"):
        LeastSquares(case.A, case.C[:, :3])
    with pytest.raises(ValueError, match="real floating dtype"):
        LeastSquares(case.A.to(torch.complex128), case.C.to(torch.complex128))
