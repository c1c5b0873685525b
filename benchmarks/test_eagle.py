"""EAGLE beside torch.linalg.lstsq: one dense system of 2,000 × 1,000, log-uniform singular values, κ = 1e4, float64.

Printed and kept in extra_info, from one run on one thread: seconds of EAGLE, its norms exact or by 4 power iterations,
over seconds of lstsq (median of 3), steps to a relative error of 1e-8 in w, and how far apart the two solutions are. It
takes a minute.
"""

import math
import statistics

import pytest
import torch

from benchmarks.paired import seconds
from interp.convergence import steps_to, trajectory
from interp.solvers import EAGLE, LeastSquares, iterate

N, D, KAPPA, STEPS = 2000, 1000, 1e4, 27


def system() -> tuple[LeastSquares, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(n, D, generator=generator, dtype=torch.float64))[0] for n in (N, D))
    sigma = torch.logspace(0, -math.log10(KAPPA), D, dtype=torch.float64)
    A, w = (U * sigma @ V.mT)[None], torch.randn(1, D, 1, generator=generator, dtype=torch.float64)
    return LeastSquares(A, A @ w), w


@pytest.mark.parametrize("power_iterations", [None, 4])
def test_eagle_against_lstsq(benchmark, power_iterations: int | None):
    problem, w = system()
    library = torch.linalg.lstsq(problem.A, problem.C).solution
    slow = statistics.median(seconds(lambda: torch.linalg.lstsq(problem.A, problem.C)) for _ in range(3))
    iterates = benchmark.pedantic(lambda: iterate(EAGLE(power_iterations=power_iterations), problem, STEPS), rounds=1)
    errors = trajectory(iterates, w)
    apart = float((iterates[-1] - library).norm() / library.norm())
    ratio, reached = benchmark.stats.stats.median / slow, steps_to(errors, 1e-8)
    assert reached.reached == 1 and apart < 1e-6
    benchmark.extra_info |= {"eagle_over_lstsq": ratio, "steps": reached.steps[0], "apart": apart}
    norms = f"{power_iterations} power iterations" if power_iterations else "eigenvalues"
    print(f"\nEAGLE, norms by {norms}: {ratio:.0f} × lstsq's {slow:.2f} s; {reached}; apart {apart:.1e}")
