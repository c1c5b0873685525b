"""What the six distributions are."""

import pytest
import torch

from analyses.claims import distributions
from analyses.claims.claim import Settings
from analyses.claims.distributions import DISTRIBUTIONS, measure_at

LARGE = (40, 60, 50)


def drawn(name: str) -> torch.Tensor:
    return DISTRIBUTIONS[name](LARGE, torch.Generator().manual_seed(0))


def test_moments():
    assert drawn("Gaussian").var().item() == pytest.approx(1, rel=0.02)
    assert drawn("Student-t, 4").var().item() == pytest.approx(2, rel=0.05)  # ν/(ν − 2)
    values, counts = drawn("sparse signs, .1").unique(return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    assert (counts / counts.sum())[1].item() == pytest.approx(0.9, abs=0.005)


def test_neighbouring_columns_correlate():
    A = drawn("AR(1), .8")
    for lag in (1, 3):
        product = (A[..., lag:] * A[..., :-lag]).mean()
        assert float(product) == pytest.approx(0.8**lag, abs=0.02)


def test_spectra():
    values = torch.linalg.svdvals(drawn("log-uniform SVD"))
    assert torch.allclose(values[:, 0] / values[:, -1], torch.full((40,), distributions.KAPPA).double())
    clustered = torch.linalg.svdvals(drawn("5 clusters"))
    assert (clustered[:, 4] > 3 * clustered[:, 5]).all()


def test_wins_are_counted_from_the_table(tmp_path):
    found = measure_at(10, 3, 60, Settings())
    rows = found.details["n = d"]
    wins = sum(row["eagle"] < min(row["cg"], row["gd"]) for row in rows.values())
    assert set(rows) == set(DISTRIBUTIONS) and found.measurements["wins"].value == wins
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()
