"""Every solver of the table keeps the contract."""

from dataclasses import replace

import pytest
import torch

from interp.solvers import KernelSystem, LeastSquares, Solver, iterate, states
from tests.interp.solvers.cases import CASES, Case

EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def only(**wanted: bool):
    chosen = {name: case for name, case in CASES.items() if all(bool(getattr(case, key)) for key in wanted)}
    return pytest.mark.parametrize("case", chosen.values(), ids=chosen)


def mapped(problem, change):
    """The problem with a change of both its tensors."""
    if isinstance(problem, LeastSquares):
        return LeastSquares(change(problem.A), change(problem.C), problem.lam)
    return KernelSystem(change(problem.K), change(problem.y), problem.lam)


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_iterates_are_those_of_the_reference(case: Case, seed: int):
    problem = case.problem(seed)
    w = iterate(case.solver, problem, case.steps)
    expected = torch.as_tensor(case.reference(problem, case.steps))
    assert w.shape == expected.shape == (case.steps + 1, *problem.moment.shape)
    assert torch.allclose(w[:: case.every], expected[:: case.every], rtol=1e-10, atol=1e-10)


@EVERY
def test_protocol_first_iterate_and_state(case: Case):
    assert isinstance(case.solver, Solver)
    problem, seen = case.problem(), states(case.solver, case.problem(), 2)
    start = case.solver.start(problem)["w"]
    assert torch.equal(iterate(case.solver, problem, 2)[0], start)
    assert all(state.keys() == seen[0].keys() for state in seen)
    assert not start.any() or case is CASES["Newton–Schulz"]


@EVERY
def test_single_precision_stays_and_is_close(case: Case):
    problem = case.problem()
    single = iterate(case.solver, mapped(problem, lambda u: u.float()), case.steps)
    double = iterate(case.solver, problem, case.steps)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), double, rtol=1e-3, atol=1e-3)


@EVERY
def test_batch_of_one_is_a_row_of_the_batch(case: Case):
    problem = case.problem()
    together = iterate(case.solver, problem, case.steps)
    alone = iterate(case.solver, mapped(problem, lambda u: u[1:2]), case.steps)
    assert torch.allclose(alone[:, 0], together[:, 1], rtol=1e-10, atol=1e-12)


@EVERY
def test_problem_is_left_alone(case: Case):
    problem, same = case.problem(), case.problem()
    iterate(case.solver, problem, case.steps)
    assert torch.equal(problem.G, same.G)
    assert torch.equal(problem.moment, same.moment)


@only(monotone=True)
def test_error_never_grows(case: Case):
    problem = case.problem()
    error = iterate(case.solver, problem, case.steps) - torch.linalg.pinv(problem.G) @ problem.moment
    energy = (error * (problem.G @ error)).sum((-2, -1))
    assert (energy[1:] <= energy[:-1] * (1 + 1e-9) + 1e-20).all()
    assert (energy[-1] < energy[0]).all()


@only(solved=True)
def test_limit_is_the_solution(case: Case):
    problem = case.problem()
    w = iterate(case.solver, problem, case.solved)[-1]
    solution = torch.linalg.pinv(problem.G, rtol=1e-10) @ problem.moment
    assert torch.allclose(w, solution, rtol=1e-8, atol=1e-8)


LEAST_NORM = [
    "gradient descent", "steepest descent", "heavy ball", "Nesterov", "Chebyshev semi-iteration", "Chebyshev nodes",
    "conjugate gradients", "Newton", "Newton–Schulz", "EAGLE", "least squares", "gradient averaging",
]  # fmt: skip


@pytest.mark.parametrize("name", LEAST_NORM)
def test_singular_systems_end_at_least_norm(name: str):
    case = replace(CASES[name], problem=CASES["least squares, rank 2"].problem)
    problem = case.problem()
    w = iterate(case.solver, problem, case.solved)[-1]
    assert torch.allclose(w, torch.linalg.pinv(problem.A, rtol=1e-10) @ problem.C, atol=1e-8)
