import pytest
import torch

from analyses.claims.machines import diverse_system, diversity


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
