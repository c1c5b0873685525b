"""Constructions against solvers: the forward pass of the weights is the iterates of the method, by two roads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.solvers import (
    EAGLE,
    Averaging,
    ChebyshevNodes,
    DistributedEAGLE,
    FunctionalGradientDescent,
    GDPlusPlus,
    GradientDescent,
    HeavyBall,
    KernelSystem,
    LeastSquares,
    PreconditionedDescent,
    iterate,
)
from models.constructions import CONSTRUCTIONS, VARIANTS, Construction, PromptShape, functional_gradient_descent
from models.prompts import LogUniformSpectrum
from models.prompts.value import Prompts

LAYERS, N = 4, 12
PROMPTS = LogUniformSpectrum(n=N, d=3, n_query=2, d_out=2, kappa=4).sample(4, seed=0)
Settings = dict[str, Any]


def schedule(settings: Settings) -> EAGLE:
    eta, gamma = settings.get("eta", [0.0] * LAYERS), settings["gamma"]
    return EAGLE(eta, gamma, norms=[1.0] * LAYERS)


def distributed(settings: Settings) -> DistributedEAGLE:
    query = settings["query_eta"], settings["query_gamma"]
    context = settings["eta"], settings["gamma"]
    return DistributedEAGLE(settings["machines"], *context, query=query, average=False, norms=[1.0] * LAYERS)


def one_head_a_machine(settings: Settings) -> DistributedEAGLE:
    steps = settings["eta"], settings["gamma"]
    return DistributedEAGLE(settings["machines"], *steps, average=False, norms=[1.0] * LAYERS)


SOLVERS: dict[str, Callable[[Settings], Any]] = {
    "gradient descent": lambda s: GradientDescent(s["gamma"]),
    "Chebyshev nodes": lambda s: ChebyshevNodes(LAYERS, tuple(s["interval"])),
    "scheduled GD": schedule,
    "preconditioned GD": lambda s: PreconditionedDescent(
        tuple(torch.tensor(P, dtype=torch.float64) for P in s["preconditioners"])
    ),
    "GD++": lambda s: GDPlusPlus(s["eta"], s["gamma"]),
    "EAGLE": lambda s: EAGLE(s["eta"], s["gamma"], norms=s["norms"]),
    "scheduled EAGLE": schedule,
    "heavy ball": lambda s: HeavyBall(s["gamma"], s["beta"]),
    "ridge GD": lambda s: GradientDescent(s["gamma"]),
    "distributed EAGLE": distributed,
    "distributed EAGLE, one head a machine": one_head_a_machine,
    "scheduled EAGLE, complementary heads": schedule,
    "gradient descent, alternating tokens": lambda s: GradientDescent(s["gamma"][0]),
}


def problem_of(construction: Construction, prompts: Prompts) -> LeastSquares:
    """With scale "n" the layer steps on AᵀA/n: the rows over √n."""
    unit = prompts.A.shape[1] ** -0.5 if construction.settings["scale"] == "n" else 1.0
    return LeastSquares(unit * prompts.A, unit * prompts.C, construction.settings.get("penalty", 0.0))


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("seed", range(6))
def test_construction_is_the_solver(name: str, seed: int):
    construction = (CONSTRUCTIONS | VARIANTS)[name](seed, 3, 2, N, LAYERS, 2)
    solver = SOLVERS[name](construction.settings)
    expected = PROMPTS.B @ iterate(solver, problem_of(construction, PROMPTS), LAYERS)[-1]
    torch.testing.assert_close(construction.predict(PROMPTS), expected, rtol=1e-10, atol=1e-10)


def test_averaging_is_the_baseline():
    found = CONSTRUCTIONS["averaging"](0, 3, 2, N, LAYERS, 2).predict(PROMPTS)
    expected = Averaging().predict(LeastSquares(PROMPTS.A, PROMPTS.C), PROMPTS.B)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


KERNELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp": lambda u, v: (u @ v.mT).exp(),
    "gaussian": lambda u, v: (-torch.cdist(u, v).square() / 2).exp(),
    "laplace": lambda u, v: (-torch.cdist(u, v)).exp(),
}


@pytest.mark.parametrize("similarity", KERNELS)
def test_functional_descent_is_the_solver(similarity: str):
    width, gamma, kernel = 0.8, 0.02, KERNELS[similarity]
    construction = functional_gradient_descent(PromptShape(3, 2, 2), similarity, [gamma] * LAYERS, width)
    A, B = PROMPTS.A / width, PROMPTS.B / width
    problem = KernelSystem(kernel(A, A), PROMPTS.C, lam=1.0)  # lam takes no part
    expected = kernel(B, A) @ iterate(FunctionalGradientDescent(gamma), problem, LAYERS)[-1]
    torch.testing.assert_close(construction.predict(PROMPTS), expected, rtol=1e-10, atol=1e-10)
