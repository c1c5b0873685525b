"""Order and iterations at small sizes."""

import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.second_order import KAPPA, STEPS, measure_at
from interp.solvers import THEORY
from tests.analyses.claims.recursion import errors_of_log_uniform


def test_measured_curve_is_the_recursion_on_its_spectrum():
    found = measure_at(24, 3, Settings())
    assert {"order", "iterations"} == set(found.measurements)
    measured = torch.tensor(found.details["errors"])
    expected = errors_of_log_uniform(KAPPA, 24, 3, 0, THEORY, STEPS)
    above = expected > 1e-9
    assert torch.allclose(measured[above].double(), expected[above], rtol=1e-4)
    assert found.measurements["order"].value == pytest.approx(found.details["order"]["value"])
