"""The table of solvers: each with a problem, the same iterates by another road, and what is proven of it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from interp.solvers import (
    DANE,
    EAGLE,
    T3,
    THEORY,
    AcceleratedDistributedEAGLE,
    ChebyshevNodes,
    ChebyshevSemiIteration,
    ClosedForm,
    ConjugateGradient,
    DistributedEAGLE,
    DistributedEstimation,
    FunctionalGradientDescent,
    GDPlusPlus,
    GradientAveraging,
    GradientDescent,
    HeavyBall,
    KernelSystem,
    LeastMeanSquares,
    LeastSquares,
    LowRankNewton,
    Nesterov,
    Newton,
    NewtonSchulz,
    Nystrom,
    Preconditioned,
    PreconditionedDescent,
    PseudoInverseEAGLE,
    RecursiveLeastSquares,
    SketchedEAGLE,
    Solver,
    SteepestDescent,
    jacobi,
    row_sums,
)
from models.prompts import LogUniformSpectrum
from tests.interp.solvers import references as ref
from tests.interp.solvers import row_references as rows


def squares(
    seed: int = 0, kappa: float = 5.0, rank: int | None = None, lam: float = 0.0, n: int = 12, noise: float = 0.1
) -> LeastSquares:
    prompts = LogUniformSpectrum(n=n, d=4, n_query=1, d_out=2, kappa=kappa, rank=rank, noise=noise)
    drawn = prompts.sample(3, seed=seed)
    return LeastSquares(drawn.A, drawn.C, lam)


def ridge(seed: int = 0) -> LeastSquares:
    return squares(seed, lam=0.3)


def many_rows(seed: int = 0, noise: float = 0.1) -> LeastSquares:
    return squares(seed, n=120, kappa=2.0, noise=noise)


def exact(seed: int = 0) -> LeastSquares:
    return squares(seed, noise=0.0)


def rank_two(seed: int = 0) -> LeastSquares:
    return squares(seed, rank=2)


def kernel(seed: int = 0, lam: float = 0.3) -> KernelSystem:
    generator = torch.Generator().manual_seed(seed)
    x = torch.arange(7.0).double() + torch.rand(3, 7, generator=generator, dtype=torch.float64) / 2
    y = torch.randn(3, 7, 2, generator=generator, dtype=torch.float64)
    return KernelSystem(torch.exp(-((x[:, :, None] - x[:, None]) ** 2) / 2), y, lam)


def gram(seed: int = 0) -> LeastSquares:
    return LeastSquares(kernel(seed).K, kernel(seed).y)


@dataclass(frozen=True)
class Case:
    """`every`: the reference holds at every so many steps; `monotone`: the error never grows in the G-norm;
    `solved`: after so many steps w is the solution of least norm."""

    solver: Solver
    reference: ref.Reference
    problem: Callable[..., LeastSquares | KernelSystem] = squares
    steps: int = 6
    every: int = 1
    monotone: bool = False
    solved: int | None = None


W = torch.tensor([[2.0, 0.3, 0, 0], [0.3, 1.0, 0.1, 0], [0, 0.1, 0.5, 0], [0, 0, 0, 0.7]], dtype=torch.float64) / 2
NODES = (1.3, 0.9, 2.5)


def inverse_diagonal(problem, prompt):
    return np.diag(1 / np.diag(problem.G[prompt].numpy()))


def inverse_row_sums(problem, prompt):
    return np.diag(1 / (problem.K[prompt].numpy().sum(1) + problem.lam))


def best(g):
    return 2 / (g.min() + g.max())


def chebyshev(g, k):
    low, high = g.min(), g.max()
    T = np.polynomial.chebyshev.Chebyshev.basis(k)
    return T((high + low - 2 * g) / (high - low)) / T((high + low) / (high - low))


def polyak(g):
    return 4 / (np.sqrt(g.max()) + np.sqrt(g.min())) ** 2


def polyak_momentum(g):
    return ((np.sqrt(g.max()) - np.sqrt(g.min())) / (np.sqrt(g.max()) + np.sqrt(g.min()))) ** 2


def nesterov_momentum(g):
    return (np.sqrt(g.max()) - np.sqrt(g.min())) / (np.sqrt(g.max()) + np.sqrt(g.min()))


NESTEROV = {"eta": lambda g: 1 / g.max(), "beta": nesterov_momentum, "nesterov": True}
RICHARDSON = ref.polynomial(lambda g, k: (1 - best(g) * g) ** k)
W_POWERS = ref.stationary(lambda problem, prompt, layer: W.numpy())

CASES = {
    "gradient descent": Case(GradientDescent(), RICHARDSON, monotone=True, solved=300),
    "gradient descent, fixed": Case(GradientDescent(0.7), ref.torch_optimiser(lr=0.7), monotone=True, solved=900),
    "gradient descent, scheduled": Case(
        GradientDescent(NODES), ref.products(lambda g: (1 - eta * g for eta in NODES)), steps=3
    ),
    "gradient descent, ridge": Case(GradientDescent(), RICHARDSON, ridge, monotone=True, solved=300),
    "steepest descent": Case(SteepestDescent(), ref.over_batch(ref.line_search), monotone=True, solved=400),
    "heavy ball": Case(HeavyBall(), ref.momentum(polyak, polyak_momentum, nesterov=False), solved=200),
    "heavy ball, fixed": Case(HeavyBall(0.8, 0.6), ref.torch_optimiser(lr=0.8, momentum=0.6), solved=300),
    "heavy ball, momentum given": Case(
        HeavyBall(momentum=0.5), ref.momentum(lambda g: min(polyak(g), 1.5 / g.max()), 0.5, nesterov=False), solved=300
    ),
    "Nesterov, step given": Case(
        Nesterov(0.6), ref.momentum(0.6, lambda g: (1 - (0.6 * g.min()) ** 0.5) / (1 + (0.6 * g.min()) ** 0.5), True)
    ),
    "Nesterov": Case(Nesterov(), ref.momentum(**NESTEROV), solved=200),
    "Nesterov, fixed": Case(Nesterov(0.6, 0.7), ref.momentum(0.6, 0.7, nesterov=True), solved=300),
    "Chebyshev semi-iteration": Case(ChebyshevSemiIteration(), ref.polynomial(chebyshev), steps=12, solved=100),
    "Chebyshev nodes": Case(ChebyshevNodes(6), ref.polynomial(chebyshev), every=6, solved=120),
    "Chebyshev nodes, long cycle": Case(ChebyshevNodes(40), ref.polynomial(chebyshev), steps=40, every=40, solved=80),
    "preconditioned descent": Case(PreconditionedDescent(W), W_POWERS, monotone=True, solved=2000),
    "preconditioned descent, split": Case(Preconditioned(GradientDescent(1.0), W), W_POWERS, monotone=True),
    "preconditioned descent, scheduled": Case(
        PreconditionedDescent((W, 2 * W, W @ W), 0.5),
        ref.stationary(lambda problem, prompt, layer: (0.5 * (W, 2 * W, W @ W)[layer]).numpy()),
        steps=3,
    ),
    "low-rank Newton": Case(LowRankNewton(2, 0.2), ref.leading_components(2, 0.2), monotone=True),
    "low-rank Newton, full": Case(LowRankNewton(4, 0.2), ref.leading_components(4, 0.2), monotone=True, solved=250),
    "conjugate gradients": Case(ConjugateGradient(), ref.scipy_cg(), steps=3, monotone=True, solved=4),
    "PCG": Case(
        Preconditioned(ConjugateGradient(), jacobi), ref.scipy_cg(inverse_diagonal), steps=3, monotone=True, solved=5
    ),
    "Newton": Case(Newton(), ref.at_once(ref.least_squares), monotone=True, solved=1),
    "Newton, damped": Case(Newton(0.4), ref.polynomial(lambda g, k: np.full_like(g, 0.6**k)), monotone=True, solved=60),
    "Newton–Schulz": Case(
        NewtonSchulz(), ref.polynomial(lambda g, k: (1 - g / g.max()) ** (2**k)), monotone=True, solved=12
    ),
    "GD++": Case(GDPlusPlus(-0.2, 0.9), ref.products(rows.eagle_factors(-0.2, 0.9, fixed=True)), monotone=True),
    "EAGLE": Case(EAGLE(), ref.products(rows.eagle_factors(-1 / 3, 1.0)), steps=12, monotone=True, solved=14),
    "EAGLE, as attention": Case(EAGLE(), rows.attention(1, (-1 / 3, 1.0), average=True), solved=14),
    "EAGLE, T₃": Case(EAGLE(*T3), ref.polynomial(rows.triple_angle), steps=5, solved=20),
    "EAGLE, scheduled": Case(
        EAGLE((-1.0, -0.5, 0.0), (1.9, 1.0, 0.5), norms=(1.0, 0.8, 0.5)),
        ref.products(rows.scheduled_factors((-1.0, -0.5, 0.0), (1.9, 1.0, 0.5), (1.0, 0.8, 0.5))),
        steps=3,
    ),
    "EAGLE, power iterations": Case(
        EAGLE(power_iterations=3, seed=7),
        rows.attention(1, (-1 / 3, 1.0), average=True, norm_of=rows.power_norm(3, 7)),
        solved=14,
    ),
    "EAGLE for A⁺": Case(
        PseudoInverseEAGLE(), ref.products(rows.eagle_factors(-1 / 3, 1.0)), steps=12, monotone=True, solved=14
    ),
    "EAGLE for A⁺, T₃": Case(PseudoInverseEAGLE(*T3), ref.polynomial(rows.triple_angle), steps=5, solved=20),
    "sketched EAGLE": Case(SketchedEAGLE(2, seed=5), rows.sketched_attention(2, (-1 / 3, 1.0), 5), exact, solved=60),
    "sketched EAGLE, full": Case(SketchedEAGLE(4), ref.products(rows.eagle_factors(-1 / 3, 1.0)), solved=14),
    "LMS": Case(LeastMeanSquares(0.5), ref.sgd_regressor(0.5), steps=12),
    "RLS": Case(RecursiveLeastSquares(0.2), ref.ridge_of_prefixes(0.2, 1.0), steps=12),
    "RLS, forgetting": Case(RecursiveLeastSquares(0.2, 0.9), ref.ridge_of_prefixes(0.2, 0.9), steps=12),
    "least squares": Case(ClosedForm(), ref.at_once(ref.least_squares), monotone=True, solved=1),
    "least squares, rank 2": Case(ClosedForm(), ref.at_once(ref.least_squares), rank_two, solved=1),
    "ridge": Case(ClosedForm(), ref.at_once(ref.sklearn_ridge), ridge, monotone=True, solved=1),
    "kernel ridge": Case(ClosedForm(), ref.at_once(ref.sklearn_kernel_ridge), kernel, monotone=True, solved=1),
    "Nyström": Case(Nystrom(), ref.at_once(ref.pseudo_inverse), gram, solved=1),
    "Nyström, rank 3": Case(Nystrom(3), ref.at_once(ref.leading_inverse(3)), gram),
    "Richardson": Case(GradientDescent(), RICHARDSON, kernel, monotone=True, solved=400),
    "preconditioned Richardson": Case(
        Preconditioned(GradientDescent(1.0), row_sums), rows.softmax_with_bos, kernel, monotone=True, solved=400
    ),
    "kernel Nesterov": Case(Nesterov(), ref.momentum(**NESTEROV), kernel, solved=200),
    "preconditioned kernel Nesterov": Case(
        Preconditioned(Nesterov(), row_sums), ref.momentum(**NESTEROV, inverse=inverse_row_sums), kernel, solved=200
    ),
    "kernel CG": Case(ConjugateGradient(), ref.scipy_cg(), kernel, steps=5, monotone=True, solved=8),
    "kernel PCG": Case(
        Preconditioned(ConjugateGradient(), row_sums),
        ref.scipy_cg(inverse_row_sums),
        kernel,
        steps=5,
        monotone=True,
        solved=8,
    ),
    "functional gradient descent": Case(FunctionalGradientDescent(0.6), rows.kernel_descent(0.6), kernel),
    "gradient averaging": Case(
        GradientAveraging(3), ref.polynomial(lambda g, k: (1 - best(g) * g) ** k), monotone=True, solved=300
    ),
    "gradient averaging, fixed": Case(
        GradientAveraging(3, 2.4), ref.torch_optimiser(lr=0.8), monotone=True, solved=900
    ),
    "DANE": Case(DANE(3, 0.5), rows.local_problems(3, 0.5, 1.0), solved=2000),
    "DANE, no regularisation": Case(DANE(3), rows.local_problems(3, 0.0, 1.0), many_rows, solved=60),
    "distributed EAGLE": Case(DistributedEAGLE(3, *THEORY), rows.attention(3, (-1 / 3, 1.0), average=True)),
    "distributed EAGLE, heads sum": Case(
        DistributedEAGLE(3, *THEORY, query=(-0.2, 0.6), average=False, norms=[1.0, 0.8, 0.7, 0.6, 0.5, 0.5]),
        rows.attention(3, (-0.2, 0.6), average=False, norms=[1.0, 0.8, 0.7, 0.6, 0.5, 0.5]),
    ),
    "distributed estimation": Case(
        DistributedEstimation(3), rows.own_preconditioners(3, -1 / 3, 1.0), exact, monotone=True, solved=120
    ),
    "distributed estimation, noise": Case(DistributedEstimation(4), rows.own_preconditioners(4, -1 / 3, 1.0)),
    "accelerated distributed EAGLE": Case(
        AcceleratedDistributedEAGLE(3), rows.averaged_projections(3, -1 / 3), exact, solved=30
    ),
    "accelerated distributed EAGLE, few rows": Case(
        AcceleratedDistributedEAGLE(4), rows.averaged_projections(4, -1 / 3), exact, solved=60
    ),
    "distributed EAGLE, one machine": Case(
        DistributedEAGLE(1, *THEORY), ref.products(rows.eagle_factors(-1 / 3, 1.0)), monotone=True, solved=14
    ),
}
