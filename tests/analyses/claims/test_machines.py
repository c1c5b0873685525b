import pytest
import torch

from analyses.claims.machines import DistributedEstimation, diverse_system, diversity
from analyses.claims.systems import log_uniform
from interp.solvers import EAGLE, DistributedEAGLE, LeastSquares, iterate, states


@pytest.mark.parametrize(
    ("alpha", "machines", "d"), [(1.0, 1, 4), (1.0, 3, 5), (0.83, 6, 13), (0.35, 3, 8), (0.01, 6, 12), (0.5, 2, 2)]
)
def test_the_systems_have_the_diversity_that_was_asked_for(alpha, machines, d):
    A = diverse_system(alpha, machines, d, 10.0, 2, seed=0).problem.A
    own = A.unflatten(1, (machines, -1))
    mean = (torch.linalg.pinv(own) @ own).mean(1)  # the projections, by another road than the singular vectors
    assert torch.allclose(torch.linalg.eigvalsh(mean)[:, 0], torch.tensor(alpha, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(diversity(A, machines), torch.tensor(alpha, dtype=torch.float64), atol=1e-10)


def test_every_machine_has_the_condition_number_that_was_asked_for():
    A = diverse_system(0.35, 4, 9, 50.0, 2, seed=1).problem.A
    sigma = torch.linalg.svdvals(A.unflatten(1, (4, -1)))
    assert torch.allclose(sigma[..., 0] / sigma[..., -1], torch.tensor(50.0, dtype=torch.float64))


@pytest.mark.parametrize(("alpha", "machines", "d"), [(0.83, 3, 9), (0.0, 3, 9), (0.35, 6, 5)])
def test_a_diversity_that_cannot_be_had_is_refused(alpha, machines, d):
    with pytest.raises(ValueError, match="neither"):
        diverse_system(alpha, machines, d, 10.0, 1, seed=0)


def test_one_machine_is_eagle():
    problem = log_uniform(100.0, (9, 7), 3, seed=0).problem
    assert torch.allclose(iterate(DistributedEstimation(1), problem, 16), iterate(EAGLE(), problem, 16), atol=1e-10)


def test_labels_that_no_weights_explain_do_not_matter_on_one_machine():
    problem = log_uniform(10.0, (9, 5), 2, seed=0).problem
    labels = torch.randn(2, 9, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noisy = LeastSquares(problem.A, problem.C + 0.1 * labels)
    assert torch.allclose(iterate(DistributedEstimation(1), noisy, 12), iterate(EAGLE(), noisy, 12), atol=1e-10)


def test_the_error_is_multiplied_by_what_the_block_form_multiplies_its_queries_by():
    system = diverse_system(0.35, 3, 9, 20.0, 2, seed=0)
    estimates = states(DistributedEstimation(3), system.problem, 40)
    blocks = states(DistributedEAGLE(3, -1 / 3, 1 / 3, query=(-1.0, 1.0)), system.problem, 40)
    for estimate, block in zip(estimates, blocks, strict=True):
        assert torch.allclose(system.exact - estimate["w"], block["B"].mT @ system.exact, atol=1e-10)


def test_numbers_neither_underflow_nor_grow():
    system = diverse_system(0.35, 3, 6, 20.0, 1, seed=0)
    last = states(DistributedEstimation(3), system.problem, 1200)[-1]
    assert system.error(last["w"]) < 1e-12
    assert torch.allclose(torch.linalg.matrix_norm(last["A"], ord=2), torch.tensor(2 / 3, dtype=torch.float64))
