"""Assignments against brute force over all monotone maps, tables against loops."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.comparison.metrics import assign, distances, error_distances, fixed_pace, monotone, standing_still

COSTS = st.tuples(st.integers(1, 4), st.integers(5, 7), st.integers(0, 2**31)).map(
    lambda shape: np.random.default_rng(shape[2]).random(shape[:2]).round(1)
)


@settings(max_examples=60, deadline=None)
@given(COSTS)
def test_dynamic_programming_finds_the_best_of_all_monotone_maps(cost: np.ndarray):
    layers, steps = cost.shape
    best = min(
        np.mean([cost[layer, step] for layer, step in enumerate(chosen)])
        for chosen in combinations_with_replacement(range(steps), layers)
    )
    found = monotone(torch.from_numpy(cost))
    assert found.cost == pytest.approx(best, abs=1e-12)
    assert list(found.steps) == sorted(found.steps)
    assert np.mean([cost[layer, step] for layer, step in enumerate(found.steps)]) == pytest.approx(best, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(COSTS)
def test_fixed_pace_is_the_best_number_of_steps_a_layer(cost: np.ndarray):
    layers, steps = cost.shape
    values = {}
    for first in (0, 1):
        for pace in range(1, steps):
            chosen = [pace * (depth - first) for depth in range(1, layers + 1)]
            if chosen[-1] < steps:
                values[tuple(chosen)] = np.mean([cost[layer, step] for layer, step in enumerate(chosen)])
    found = fixed_pace(torch.from_numpy(cost))
    assert found.cost == pytest.approx(min(values.values()), abs=1e-12)
    assert values[found.steps] == pytest.approx(found.cost, abs=1e-12)
    assert monotone(torch.from_numpy(cost)).cost <= found.cost + 1e-12


def test_tables_against_loops_and_scaled_labels():
    rng = np.random.default_rng(0)
    P, S, R = rng.normal(size=(3, 10)), rng.normal(size=(5, 10)), rng.normal(size=10)
    S[4] = R  # an error that has vanished
    given = [torch.from_numpy(values) for values in (P, S, R)]
    near, turned = distances(*given), error_distances(*given)
    for layer in range(3):
        for step in range(5):
            gap = np.sqrt(np.mean((P[layer] - S[step]) ** 2)) / np.sqrt(np.mean(R**2))
            assert near[layer, step].item() == pytest.approx(gap, rel=1e-12)
            a, b = P[layer] - R, S[step] - R
            size = np.linalg.norm(a) * np.linalg.norm(b)
            assert turned[layer, step].item() == pytest.approx(1 - (a @ b / size if size else 0), rel=1e-12)
    scaled = [7.0 * values for values in given]
    torch.testing.assert_close(distances(*scaled), near)
    torch.testing.assert_close(error_distances(*scaled), turned)


def test_metrics_read_the_table_that_they_are_defined_on():
    near, turned = torch.rand(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert assign("A", near, turned) == monotone(near)
    assert assign("A-lin", near, turned) == fixed_pace(near)
    assert assign("C", near, turned) == monotone(turned)
    assert standing_still("A", near, turned) == near[:, 0].mean().item()
    assert standing_still("C", near, turned) == turned[:, 0].mean().item()


def test_more_layers_than_steps_are_refused():
    with pytest.raises(ValueError, match="fewer than 4 layers"):
        fixed_pace(torch.rand(4, 4))
