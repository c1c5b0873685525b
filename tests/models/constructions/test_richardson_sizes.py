"""Networks sized for an error keep it; the laws of depth and width hold for iterates and networks."""

import math

import pytest
import torch
from torch import Tensor

from interp.gaussian_process import kernel_system, posterior
from interp.solvers import GradientDescent, Preconditioned, iterate, row_sums
from models.constructions import PromptShape, richardson, richardson_for_error
from models.constructions.richardson_domain import Domain
from models.constructions.richardson_sizes import depth_law, segments_for, steps_for, width_law
from models.prompts import GaussianProcess
from models.prompts.value import Prompts

H, Y_MAX, EPS = 0.3, 4.0, 1e-2


def domain(n: int, lam: float) -> Domain:
    return Domain(n, lam, H, Y_MAX, float(n))


def hard_prompts(n: int, count: int = 2) -> tuple[Prompts, GaussianProcess]:
    """Inputs that cluster, and labels of the largest size with random signs."""
    process = GaussianProcess(n=n, n_query=4, lengthscale=H, clustered=0.6)
    prompts = process.sample(count, seed=n)
    signs = torch.randint(0, 2, prompts.C.shape, generator=torch.Generator().manual_seed(n)) * 2.0 - 1
    prompts.tokens[:, :n, 1:] = Y_MAX * signs
    return prompts, process


@pytest.mark.parametrize("n", [16, 64])
def test_sized_for_an_error_in_both_precisions(n: int):
    prompts, process = hard_prompts(n, 1)
    construction = richardson_for_error(EPS, n, 0.1 * n, H, Y_MAX, n_query=4)
    expected = posterior(process.kernel, 0.1 * n, prompts.A, prompts.C, prompts.B).mean
    tokens = construction.tokens(prompts)
    for dtype in (torch.float64, torch.float32):
        found = construction.model.to(dtype).predict(tokens.to(dtype))
        assert (found.double() - expected).abs().max() < EPS


def iterates(prompts: Prompts, process: GaussianProcess, lam: float, steps: int) -> Tensor:
    system = kernel_system(process.kernel, lam, prompts.A, prompts.C)
    return process.kernel(prompts.B, prompts.A) @ iterate(Preconditioned(GradientDescent(1.0), row_sums), system, steps)


@pytest.mark.parametrize("lam", [0.05, 2.0])
def test_the_depth_law_bounds_the_iteration_and_its_ranges(lam: float):
    prompts, process = hard_prompts(24, 16)
    found, limits = iterates(prompts, process, lam, 40), domain(24, lam)
    expected = posterior(process.kernel, lam, prompts.A, prompts.C, prompts.B).mean
    for steps, prediction in enumerate(found):
        assert (prediction - expected).abs().max() <= depth_law(limits, steps)
    assert found.abs().max() <= limits.f_max


@pytest.mark.parametrize("m", [32, 128])
def test_the_width_law_bounds_the_network(m: int):
    prompts, process = hard_prompts(12)
    construction = richardson(PromptShape(1, n_query=4, n=12), 1.2, H, 10, m, Y_MAX)
    error = (construction.predict(prompts) - iterates(prompts, process, 1.2, 10)[-1]).abs().max().item()
    law = width_law(domain(12, 1.2), m)
    assert law / 1000 < error <= law


def test_sizes_are_the_smallest_that_the_laws_allow():
    limits = domain(32, 3.2)
    steps, m = steps_for(limits, EPS), segments_for(limits, EPS)
    assert depth_law(limits, steps) <= EPS < depth_law(limits, steps - 1)
    assert width_law(limits, m) <= EPS < width_law(limits, m - 2)


def test_sizes_do_not_grow_with_n_where_lambda_does():
    few, many = domain(16, 1.6), domain(4096, 409.6)
    assert steps_for(few, EPS) == steps_for(many, EPS)
    assert segments_for(many, EPS) < 1.3 * segments_for(few, EPS)
    assert steps_for(domain(64, 0.5), EPS) > 3 * steps_for(domain(16, 0.5), EPS)


def test_a_known_row_sum_makes_it_shallower():
    sparse = Domain(64, 6.4, H, Y_MAX, 16.0)
    assert steps_for(sparse, EPS) < steps_for(domain(64, 6.4), EPS) / 2
    assert richardson_for_error(0.1, 64, 6.4, H, Y_MAX, d_max=16.0).settings["d_max"] == 16.0


@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan])
def test_an_error_must_be_positive(eps: float):
    with pytest.raises(ValueError, match="eps must be positive"):
        richardson_for_error(eps, 8, 1.0, H, Y_MAX)
