"""Rows on several machines: what the diversity index α costs, with and without acceleration."""

import math

import pytest
import torch

from interp.convergence import rate, trajectory
from interp.solvers import AcceleratedDistributedEAGLE, DistributedEAGLE, LeastSquares, iterate, states
from interp.solvers.sketched_eagle import frame
from tests.interp.solvers.cases import squares

PLAIN = {"eta": -1 / 3, "gamma": 1 / 3, "query": (-1.0, 1.0)}


def machines_of(count: int, alpha: float, d: int = 8, kappa: float = 20.0, seed: int = 0):
    """Machines with d − 1 or d rows' worth of directions, the mean of the projections with smallest eigenvalue α.

    The missing directions lie in one plane, m of them, such that Σ v vᵀ has the largest eigenvalue count (1 − α).
    """
    generator, Q = torch.Generator().manual_seed(seed), frame(d, d, seed)
    lacking = math.ceil(count * (1 - alpha) - 1e-9)
    half = math.acos((2 * count * (1 - alpha) - lacking - lacking % 2) / max(1, 2 * (lacking // 2))) / 2
    angles = [0.0] * (lacking % 2) + [half, -half] * (lacking // 2)
    rows = []
    for machine in range(count):
        rank = d - (machine < lacking)
        basis = Q
        if machine < lacking:
            v = math.cos(angles[machine]) * Q[:, :1] + math.sin(angles[machine]) * Q[:, 1:2]
            basis = torch.linalg.qr(torch.cat([v, Q], 1))[0][:, 1:]
        basis = basis[:, :rank] @ frame(rank, rank, 50 * seed + machine)
        sigma = torch.logspace(0, -math.log10(kappa), rank, dtype=torch.float64)
        rows.append(3.0**machine * frame(d, rank, 90 * seed + machine) * sigma @ basis.mT)
    A, w = torch.cat(rows)[None], torch.randn(1, d, 2, generator=generator, dtype=torch.float64)
    return LeastSquares(A, A @ w), w


def diversity(problem: LeastSquares, count: int) -> float:
    projections = [torch.linalg.pinv(A, rtol=1e-10) @ A for A in problem.A[0].chunk(count)]
    return float(torch.linalg.eigvalsh(sum(projections) / count)[0])


def steps(solver, problem: LeastSquares, w: torch.Tensor, most: int = 120) -> int:
    return int((trajectory(iterate(solver, problem, most), w)[:, 0] < 1e-8).nonzero()[0])


@pytest.mark.parametrize(("count", "alpha"), [(3, 1.0), (8, 0.83), (5, 0.5), (8, 0.35), (3, 0.01)])
def test_problems_have_the_diversity_index(count: int, alpha: float):
    assert diversity(machines_of(count, alpha)[0], count) == pytest.approx(alpha, abs=1e-9)


def test_acceleration_costs_one_over_root_alpha():
    """Below 2 log κ steps of conditioning and the bound of conjugate gradients; the plain steps need 1/α."""
    for alpha in (0.5, 0.1, 0.02):
        problem, w = machines_of(5, alpha, d=12)
        conditioning, root = 2 * math.log(20.0) / math.log(1.5), math.sqrt(alpha)
        bound = math.log(2e8 / root) / -math.log((1 - root) / (1 + root))
        assert steps(AcceleratedDistributedEAGLE(5), problem, w) <= conditioning + bound
    problem, w = machines_of(5, 0.1)
    plain = rate(trajectory(iterate(DistributedEAGLE(5, **PLAIN), problem, 60), w)[20:])
    assert plain.value == pytest.approx(0.9, abs=2e-3)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_steps_do_not_depend_on_the_number_of_machines(alpha: float):
    counts = [steps(AcceleratedDistributedEAGLE(count), *machines_of(count, alpha)) for count in (3, 5, 8)]
    assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize("alpha", [0.83, 0.5, 0.35, 0.1])
def test_fewer_steps_than_unaccelerated(alpha: float):
    problem, w = machines_of(8, alpha)
    fast = iterate(AcceleratedDistributedEAGLE(8), problem, 45)
    assert trajectory(fast, w)[-1] < 1e-10
    for slow in (DistributedEAGLE(8), DistributedEAGLE(8, **PLAIN)):
        reached = trajectory(iterate(slow, problem, steps(AcceleratedDistributedEAGLE(8), problem, w)), w)[-1]
        assert reached > 1e-7


@pytest.mark.parametrize("solver", [DistributedEAGLE(3), DistributedEAGLE(3, **PLAIN), AcceleratedDistributedEAGLE(3)])
def test_machines_labels_stay_consistent(solver):
    """γ = −η: C_μ = A_μ W at every layer; theory's γ breaks it."""
    problem = squares(noise=0.0)
    w = torch.linalg.pinv(problem.A) @ problem.C
    for state in states(solver, problem, 8):
        unit = state.get("unit", torch.ones(3, 1, 1))  # of w, where A and C are carried in units of their own
        assert torch.allclose(state["C"], state["A"] @ (w / unit)[:, None], atol=1e-10)
    other = states(DistributedEAGLE(3, -1 / 3, 1.0), problem, 2)[-1]
    assert (other["C"] - other["A"] @ w[:, None]).norm() > 1e-2


def test_null_spaces_of_machines_do_no_harm_in_the_long_run():
    """200 steps with rank-deficient machines: conditioning has stopped, rounding has not grown; plain steps drift."""
    problem, w = machines_of(3, 0.05)
    assert trajectory(iterate(AcceleratedDistributedEAGLE(3), problem, 200), w)[-1] < 1e-12
    assert trajectory(iterate(DistributedEAGLE(3, **PLAIN), problem, 200), w)[-1] > 1e-3


def test_limit_with_noise_is_the_mean_of_the_projections():
    problem = squares(noise=0.3)
    w = iterate(AcceleratedDistributedEAGLE(4), problem, 60)[-1]
    H, target = torch.zeros(3, 4, 4).double(), torch.zeros(3, 4, 2).double()
    for A, C in zip(problem.A.chunk(4, 1), problem.C.chunk(4, 1), strict=True):
        inverse = torch.linalg.pinv(A)
        H, target = H + inverse @ A, target + inverse @ C
    assert torch.allclose(w, torch.linalg.solve(H, target), atol=1e-8)
