"""The built network against the solver and against exact Gaussian-process regression: roads that share no code."""

import pytest
from torch import Tensor

from interp.gaussian_process import kernel_system, posterior
from interp.solvers import GradientDescent, Preconditioned, iterate, row_sums
from models.constructions import PromptShape, richardson
from models.prompts import GaussianProcess

LAM, H, Y_MAX = 1.2, 0.3, 4.0
PROCESS = GaussianProcess(n=12, d=1, n_query=4, lengthscale=H, lam=0.05, clustered=0.5)
PROMPTS = PROCESS.sample(4, seed=0)


def error(steps: int, m: int, expected: Tensor, omega: float = 1.0) -> float:
    construction = richardson(PromptShape(1, n_query=4, n=12), LAM, H, steps, m, Y_MAX, omega=omega)
    return (construction.predict(PROMPTS) - expected).abs().max().item()


@pytest.mark.parametrize("omega", [0.7, 1.0])
def test_the_solver_is_the_limit_of_wide_networks(omega: float):
    solver = Preconditioned(GradientDescent(omega), row_sums)
    alpha = iterate(solver, kernel_system(PROCESS.kernel, LAM, PROMPTS.A, PROMPTS.C), 6)[-1]
    expected = PROCESS.kernel(PROMPTS.B, PROMPTS.A) @ alpha
    errors = [error(6, m, expected, omega) for m in (64, 256, 1024)]
    assert errors[1] < errors[0] / 8 and errors[2] < errors[1] / 8 and errors[2] < 2e-4  # as m⁻² would, 16 times


def test_many_blocks_are_exact_regression():
    expected = posterior(PROCESS.kernel, LAM, PROMPTS.A, PROMPTS.C, PROMPTS.B).mean
    errors = [error(steps, 512, expected) for steps in (2, 8, 40)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2] and errors[2] < 1e-3
