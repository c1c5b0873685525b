"""Intervals: known exponents and medians are found, and their intervals shrink with the number of samples."""

import pytest
import torch

from analyses.claims.fits import bootstrap, exponent, median


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_power_law_without_scatter_is_exact():
    x = [1.0, 2.0, 5.0]
    y = 3 * torch.tensor(x, dtype=torch.float64)[:, None] ** 1.7
    found = exponent(x, y.expand(3, 4), "note")
    assert found.value == pytest.approx(1.7, abs=1e-12)
    assert found.interval == (pytest.approx(1.7), pytest.approx(1.7)) and found.note == "note"


def test_the_interval_holds_the_exponent_and_shrinks():
    x = [1.0, 3.0, 10.0, 30.0]
    powers = torch.tensor(x, dtype=torch.float64)[:, None] ** -0.5
    few, many = (exponent(x, powers * (0.3 * draw(4, count)).exp(), "") for count in (10, 1000))
    for found in (few, many):
        assert found.interval[0] < -0.5 < found.interval[1]
    assert many.interval[1] - many.interval[0] < (few.interval[1] - few.interval[0]) / 4


def test_the_median_and_its_interval():
    values = draw(4001) + 2
    found = median(values, "")
    assert found.value == values.median().item()
    assert found.interval[0] < 2 < found.interval[1] and found.interval[1] - found.interval[0] < 0.2


@pytest.mark.parametrize("values", [torch.zeros(0), torch.tensor([1.0, float("nan")])])
def test_nothing_to_measure_is_an_error(values):
    with pytest.raises(ValueError, match="nothing to measure; the note"):
        bootstrap(lambda chosen: chosen.mean(-1), values, "the note")
