"""The solvers that layers are compared with: iterations on (K + λI) α = y, read out as k(q, X) α_k."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from interp.comparison.problems import Problems
from interp.covariance import Covariance
from interp.gaussian_process import kernel_system
from interp.solvers import (
    ConjugateGradient,
    GradientDescent,
    Nesterov,
    Preconditioned,
    Solver,
    iterate,
    row_sums,
)

PRECONDITIONED_RICHARDSON, RICHARDSON = "preconditioned Richardson", "Richardson (GD)"

CANDIDATES: dict[str, Solver] = {
    PRECONDITIONED_RICHARDSON: Preconditioned(GradientDescent(1.0), row_sums),
    RICHARDSON: Nesterov(momentum=0.0),
    "Nesterov": Nesterov(),
    "preconditioned Nesterov": Preconditioned(Nesterov(), row_sums),
    "CG": ConjugateGradient(),
    "PCG": Preconditioned(ConjugateGradient(), row_sums),
}
"""P = D + λI, D the row sums of K, in all three preconditioned ones, whose Richardson takes ω = 1. Plain Richardson is
gradient descent with the step 1/λ_max(K + λI) of each prompt (Nesterov without momentum): the step 2/(λ_min + λ_max)
has the better worst case, and its first iterates overshoot on the top eigenvector, which no smooth read-out follows."""


def choose(names: Sequence[str]) -> dict[str, Solver]:
    """Some of `CANDIDATES` by name.

    Raises:
        ValueError: a name that is none of them, or no name.
    """
    for name in names:
        if name not in CANDIDATES:
            raise ValueError(f"compare: unknown solver {name!r}; known: {', '.join(CANDIDATES)}")
    if not names:
        raise ValueError(f"compare: give at least one solver; known: {', '.join(CANDIDATES)}")
    return {name: CANDIDATES[name] for name in names}


def trajectories(
    problems: Problems, covariance: Covariance, lam: float, solvers: Mapping[str, Solver], steps: int
) -> dict[str, Float[Tensor, "step batch query out"]]:
    """The predictions k(q, X) α_k of each solver after k = 0 … steps steps."""
    system = kernel_system(covariance, lam, problems.x, problems.y)
    across = covariance(problems.queries, problems.x)
    return {name: across @ iterate(solver, system, steps) for name, solver in solvers.items()}


def check_solvers(solvers: Mapping[str, Solver]) -> dict[str, Solver]:
    """The solvers, each with a start and a step."""
    if not solvers:
        raise ValueError("compare: give at least one solver, as {name: solver}")
    for name, solver in solvers.items():
        if not isinstance(solver, Solver):
            raise ValueError(
                f"compare: {name!r} is {type(solver).__name__}, which has no start and step; give solvers of "
                "interp.solvers, or your own with both"
            )
    return dict(solvers)
