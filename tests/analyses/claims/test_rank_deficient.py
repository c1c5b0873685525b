"""Half the rank at small sizes."""

import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.rank_deficient import curves_of, measure_at
from analyses.claims.systems import first_below, rms


def test_ratio_is_that_of_the_curves(tmp_path):
    curves, found = curves_of(12, 3, Settings()), measure_at(12, 3, Settings())
    half, full = (int(first_below(rms(curves[name]), 1e-8)) for name in ("half the rank", "full rank"))
    assert found.measurements["iterations"].value == pytest.approx(half / full)
    assert found.measurements["error"].value == pytest.approx(float(rms(curves["half the rank"]).min()))
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_labels_outside_the_range_change_no_early_iterate_and_grow_by_nine_quarters():
    curves = curves_of(12, 3, Settings())
    inside, outside = rms(curves["half the rank"]), rms(curves["half the rank, labels outside"])
    assert torch.allclose(inside[:12], outside[:12], rtol=1e-6)
    growth = (outside[-1] / outside[-11]) ** 0.1
    assert float(growth) == pytest.approx(9 / 4, rel=1e-2)
