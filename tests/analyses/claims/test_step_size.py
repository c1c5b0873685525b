"""Iterations by step size at small sizes."""

import math

import torch

from analyses.claims.claim import Settings
from analyses.claims.step_size import STEPS, iterations, measure_at, shares
from analyses.claims.systems import first_below, log_uniform
from tests.analyses.claims.recursion import errors_of_log_uniform


def test_iterations_are_those_of_the_recursion():
    system = log_uniform(10.0, (6, 6), 3, seed=0)
    for point in ((-0.5, 1.0), (-1 / 3, 0.4), (-1.3, 1.0)):
        expected = first_below(errors_of_log_uniform(10.0, 6, 3, 0, point, STEPS), 1e-6)
        assert iterations(*point, system).tolist() == expected.tolist()


def test_values_that_do_not_contract_never_arrive():
    system = log_uniform(10.0, (6, 6), 2, seed=0)
    assert iterations(-2.0, 1.0, system).tolist() == [math.inf, math.inf]
    assert iterations(-1 / 3, 2.0, system).tolist() == [math.inf, math.inf]
    assert iterations(-1.95, 1.0, system).tolist() == [math.inf, math.inf]


def test_shares_count_values_near_the_best():
    counts = torch.tensor([[10.0, math.inf], [30.0, 20.0], [31.0, 60.0]])
    assert torch.allclose(shares(counts), torch.tensor([2 / 3, 2 / 3]).double())


def test_measured_shares_are_those_of_the_counts(tmp_path):
    found = measure_at(6, 2, (0.2, 1.0, 2.0), Settings())
    for name in ("eta", "gamma"):
        counts = torch.tensor(found.details["100"][name], dtype=torch.float64)
        assert abs(found.measurements[name].value - float(shares(counts).mean())) < 1e-12
    assert "> 80" in found.table
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()
