"""Criteria, measurements and verdicts: a verdict is a function of both, on either side of every bound."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.claims.claim import Band, Criterion, Measurement, verdict
from analyses.claims.criteria import CRITERIA

BETWEEN = Criterion("exponent", "2", "theorem", holds=Band(1.8, 2.2), partly=Band(1.5, 2.5))
AT_MOST = Criterion("ratio", "1", "figure", holds=Band(high=1.1), partly=Band(high=2.0))
AT_LEAST = Criterion("share", "all", "figure", holds=Band(low=0.9), partly=Band(low=0.5))
ABOVE, BELOW = 1e-9, -1e-9


@pytest.mark.parametrize(
    ("criterion", "value", "expected"),
    [
        (BETWEEN, 1.8, "reproduced"),
        (BETWEEN, 1.8 + BELOW, "partly"),
        (BETWEEN, 2.2, "reproduced"),
        (BETWEEN, 2.2 + ABOVE, "partly"),
        (BETWEEN, 1.5, "partly"),
        (BETWEEN, 1.5 + BELOW, "not reproduced"),
        (BETWEEN, 2.5 + ABOVE, "not reproduced"),
        (AT_MOST, 1.1, "reproduced"),
        (AT_MOST, 1.1 + ABOVE, "partly"),
        (AT_MOST, 2.0 + ABOVE, "not reproduced"),
        (AT_MOST, -math.inf, "reproduced"),
        (AT_MOST, math.inf, "not reproduced"),
        (AT_LEAST, 0.9, "reproduced"),
        (AT_LEAST, 0.9 + BELOW, "partly"),
        (AT_LEAST, 0.5 + BELOW, "not reproduced"),
    ],
)
def test_both_sides_of_every_bound(criterion, value, expected):
    assert verdict(Measurement.exact(value, ""), criterion) == expected


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (2.0, (1.9, 2.1), "reproduced"),
        (2.0, (1.7, 2.1), "partly"),
        (2.0, (1.9, 2.3), "partly"),
        (2.0, (0.0, 9.0), "partly"),
        (2.4, (2.0, 2.6), "partly"),
        (2.6, (2.0, 2.7), "not reproduced"),
    ],
)
def test_an_interval_that_sticks_out_is_no_reproduction(value, interval, expected):
    assert verdict(Measurement(value, interval, ""), BETWEEN) == expected


@given(st.floats(allow_nan=False), st.floats(0, 10), st.floats(0, 10))
def test_a_verdict_never_improves_as_the_interval_widens(value, below, above):
    ranks = ["not reproduced", "partly", "reproduced"]
    narrow = verdict(Measurement.exact(value, ""), BETWEEN)
    wide = verdict(Measurement(value, (value - below, value + above), ""), BETWEEN)
    assert ranks.index(wide) <= ranks.index(narrow)


@pytest.mark.parametrize(
    "measured",
    [None, Measurement.exact(math.nan, ""), Measurement(2.0, (2.1, 2.2), ""), Measurement(2.0, (1.9, math.nan), "")],
)
def test_what_was_not_measured_is_an_error(measured):
    with pytest.raises(ValueError, match=r"exponent: (nothing was measured|.* is no measurement)"):
        verdict(measured, BETWEEN)


def test_bands_and_criteria_that_contradict_themselves_are_refused():
    with pytest.raises(ValueError, match="low=2 must be at most high=1"):
        Band(2, 1)
    with pytest.raises(ValueError, match="must be at most"):
        Band(math.nan, 1)
    with pytest.raises(ValueError, match=r"partly \(≤ 1\) must contain holds \(≤ 2\)"):
        Criterion("q", "p", "w", holds=Band(high=2), partly=Band(high=1))


@pytest.mark.parametrize(
    ("band", "text"), [(Band(1, 2), "1 … 2"), (Band(high=0.5), "≤ 0.5"), (Band(low=3), "≥ 3"), (Band(2, 2), "= 2")]
)
def test_bands_print_as_they_are_read(band, text):
    assert str(band) == text


@pytest.mark.parametrize("name", CRITERIA)
def test_every_criterion_can_fail(name):
    for criterion in CRITERIA[name].values():
        outside = [value for value in (-math.inf, math.inf) if value not in criterion.partly]
        assert outside and criterion.quantity and criterion.published and criterion.place
