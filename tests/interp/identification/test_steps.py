import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.identification.steps import (
    chebyshev_nodes,
    constant,
    descent,
    eagle,
    gd_plus_plus,
    scheduled_descent,
    scheduled_eagle,
    shrinkage,
)

POSITIVE = st.floats(0.1, 10)


@given(low=st.floats(0.05, 1), width=st.floats(0.1, 5), depth=st.integers(2, 7), seed=st.integers(0, 99))
def test_chebyshev_nodes_give_their_interval_back(low: float, width: float, depth: int, seed: int):
    angles = (2 * np.arange(1, depth + 1) - 1) * math.pi / (2 * depth)
    nodes = low + width / 2 + width / 2 * np.cos(angles)
    order = np.random.default_rng(seed).permutation(depth)
    steps = chebyshev_nodes([0.0] * (depth - 1), (1 / nodes[order]).tolist())
    assert steps is not None
    assert steps.settings["interval"] == pytest.approx([low, low + width], rel=1e-9)
    assert steps.settings["order"] == order.tolist()
    assert steps.gamma == pytest.approx((1 / nodes[order]).tolist(), rel=1e-9)


def test_steps_that_are_no_nodes_are_moved():
    given_steps = [0.5, 0.6, 2.0, 2.1]
    steps = chebyshev_nodes([0.0] * 3, given_steps)
    assert steps is not None and max(abs(a - b) / b for a, b in zip(steps.gamma, given_steps, strict=True)) > 0.05
    assert chebyshev_nodes([0.0], [1.0, -1.0]) is None
    assert chebyshev_nodes([0.0] * 2, [1 / 1.909, 1.0, 1 / 0.0907]) is None  # the interval would reach below 0


@given(size=st.floats(0.02, 4 / 3), gamma=st.floats(0.2, 2), norm=st.floats(0.3, 3), depth=st.integers(3, 6))
def test_eagle_gives_its_constants_back(size: float, gamma: float, norm: float, depth: int):
    norms = [norm * shrinkage(size) ** layer for layer in range(depth)]
    steps = eagle([-size / n**2 for n in norms[:-1]], [gamma / n**2 for n in norms])
    assert steps is not None
    assert steps.settings == pytest.approx({"eta": -size, "gamma": gamma, "initial norm": norm}, rel=1e-6)


@given(eta=st.floats(0.01, 2))
def test_shrinkage_is_the_maximum_of_the_cubic(eta: float):
    sigma = np.linspace(0, 1, 20001)
    assert shrinkage(-eta) == pytest.approx(float(np.abs(sigma * (1 - eta * sigma**2)).max()), abs=1e-6)


def test_growth_that_no_eta_has_is_no_eagle():
    assert eagle([-1.0, -1.0], [1.0, 1.0, 1.0]) is None  # no growth: GD++
    assert eagle([-1.0, -20.0], [1.0, 20.0, 400.0]) is None  # more than a factor 9 a layer
    assert eagle([0.1, -1.0], [1.0, 2.0, 4.0]) is None and eagle([-0.1], [1.0, -2.0]) is None


def test_one_layer_leaves_one_number():
    families = (descent, chebyshev_nodes, scheduled_descent, gd_plus_plus, eagle, scheduled_eagle)
    assert {family([], [0.7]).free for family in families} == {1}


@given(values=st.lists(POSITIVE, min_size=1, max_size=6))
def test_constant_is_the_value_of_equal_values(values: list[float]):
    assert constant([values[0]] * 4) == pytest.approx(values[0])
    assert constant([-values[0]] * 4) == pytest.approx(-values[0])
    assert min(values) - 1e-12 <= constant(values) <= max(values) + 1e-12
    assert constant([1.0, -1.0]) == 0
