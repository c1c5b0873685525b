"""EAGLE that estimates w from several machines."""

import torch

from interp.solvers import EAGLE, DistributedEAGLE, DistributedEstimation, iterate, states
from tests.interp.solvers.cases import squares
from tests.interp.solvers.test_distributed import machines_of


def test_one_machine_is_eagle_with_any_labels():
    for problem in (squares(kappa=50.0, noise=0.0), squares()):
        assert torch.allclose(iterate(DistributedEstimation(1), problem, 14), iterate(EAGLE(), problem, 14), atol=1e-10)


def test_the_error_is_multiplied_by_what_the_block_form_multiplies_its_queries_by():
    problem, exact = machines_of(3, 0.35, d=9)
    estimates = states(DistributedEstimation(3), problem, 30)
    blocks = states(DistributedEAGLE(3, -1 / 3, 1 / 3, query=(-1.0, 1.0)), problem, 30)
    for estimate, block in zip(estimates, blocks, strict=True):
        assert torch.allclose(exact - estimate["w"], block["B"].mT @ exact, atol=1e-10)


def test_numbers_neither_underflow_nor_grow():
    """Four machines of three independent rows each."""
    problem = squares(noise=0.0)
    last = states(DistributedEstimation(4), problem, 1200)[-1]
    assert torch.allclose(last["w"], torch.linalg.pinv(problem.A) @ problem.C, atol=1e-12)
    norms = torch.linalg.matrix_norm(last["A"], ord=2)
    assert (norms > 0.1).all() and (norms < 10).all()


def test_rows_beyond_the_rank_of_a_machine_feed_rounding_in_the_long_run():
    problem, exact = machines_of(3, 0.35, d=9)
    seen = states(DistributedEstimation(3), problem, 150)
    assert (seen[40]["w"] - exact).norm() < 1e-6 * exact.norm()
    assert (seen[150]["w"] - exact).norm() > exact.norm()
