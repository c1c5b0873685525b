import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from interp.unrolling.sketch import kolmogorov_smirnov, nearest_projection, sketch_test

REJECTED = 0.01


def sketches(count: int, d: int, r: int, noise: float, seed: int) -> list[Tensor]:
    """2.5 S Sᵀ with noise of that relative size on all entries."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.linalg.qr(torch.randn(count, d, r, generator=generator, dtype=torch.float64))[0]
    errors = torch.randn(count, d, d, generator=generator, dtype=torch.float64)
    return [2.5 * (S @ S.T + noise * r**0.5 * E / E.norm()) for S, E in zip(frames, errors, strict=True)]


@pytest.mark.parametrize(("d", "r"), [(6, 3), (18, 5)])
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
def test_sketches_are_not_rejected(d: int, r: int, noise: float):
    """Of 20 with two tests each, on average 0.4 are by chance."""
    found = [sketch_test(block, r) for block in sketches(20, d, r, noise, seed=1)]
    assert sum(min(test.eigenvalues_p, test.entries_p) < REJECTED for test in found if test) <= 2
    p = torch.tensor([test.entries_p for test in found if test])
    assert 0.3 < p.mean() < 0.7  # uniform under the null


def test_frames_that_are_not_uniform_are_rejected_by_their_entries():
    """Columns of a permutation, and of a frame that leaves half of the columns alone."""
    coordinates = torch.diag(torch.tensor([1.0] * 5 + [0] * 13, dtype=torch.float64))
    half = torch.zeros(18, 18, dtype=torch.float64)
    half[:9, :9] = sketches(1, 9, 5, 0.0, seed=0)[0]
    for block in (coordinates, half):
        found = sketch_test(block, 5)
        assert found is not None and found.entries_p < REJECTED and found.eigenvalues_p > REJECTED


def test_other_spectra_are_rejected_by_their_eigenvalues():
    S = torch.linalg.qr(torch.randn(18, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64))[0]
    graded = S @ torch.diag(torch.linspace(1, 0.2, 6, dtype=torch.float64)) @ S.T
    found = sketch_test(graded, 6)
    assert found is not None and found.eigenvalues_p < REJECTED


def test_no_test_of_full_rank_or_of_nothing():
    assert sketch_test(torch.eye(4, dtype=torch.float64), 4) is None
    assert sketch_test(torch.tensor([[0.0, 1], [-1, 0]], dtype=torch.float64), 1) is None


@pytest.mark.parametrize("c", [2.0, -0.5])
def test_the_nearest_projection(c: float):
    block = sketches(1, 6, 2, 0.0, seed=2)[0] / 2.5
    found = nearest_projection(c * block, 2)
    assert found.c == pytest.approx(c) and found.residual < 1e-12 and torch.allclose(found.P, block)
    assert nearest_projection(torch.zeros(3, 3, dtype=torch.float64), 1).residual == 0


def test_kolmogorov_smirnov_is_scipys_ties_and_all():
    generator = torch.Generator().manual_seed(0)
    samples = (4 * torch.randn(5, 30, generator=generator, dtype=torch.float64)).round()
    reference = (4 * torch.randn(200, generator=generator, dtype=torch.float64) + 1).round()
    found = kolmogorov_smirnov(samples, reference.sort().values)
    assert found.tolist() == pytest.approx([ks_2samp(sample, reference).statistic for sample in samples.numpy()])
