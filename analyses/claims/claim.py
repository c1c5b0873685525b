"""What a claim is: criteria fixed before anything is measured, measurements, and the verdict that follows from both."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["reproduced", "partly", "not reproduced"]


@dataclass(frozen=True)
class Band:
    """The numbers from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"Band: low={self.low} must be at most high={self.high}")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.low == self.high:
            return f"= {self.low:g}"
        if math.isinf(self.low) or math.isinf(self.high):
            return f"≤ {self.high:g}" if math.isinf(self.low) else f"≥ {self.low:g}"
        return f"{self.low:g} … {self.high:g}"


@dataclass(frozen=True)
class Criterion:
    """When a measured number counts as the published one.

    Args:
        quantity: what is measured, in words, with its unit.
        published: what the source says.
        place: where it says so.
        holds: where the number has to lie for "reproduced".
        partly: where it has to lie for "partly"; contains `holds`.
    """

    quantity: str
    published: str
    place: str
    holds: Band
    partly: Band

    def __post_init__(self) -> None:
        if self.holds.low not in self.partly or self.holds.high not in self.partly:
            raise ValueError(f"Criterion {self.quantity!r}: partly ({self.partly}) must contain holds ({self.holds})")


@dataclass(frozen=True)
class Measurement:
    """A number with its interval (95 % unless the note says otherwise; the number itself where it has no scatter).

    Args:
        note: how it was measured, and, where it is not what was published, why.
    """

    value: float
    interval: tuple[float, float]
    note: str

    @classmethod
    def exact(cls, value: float, note: str) -> "Measurement":
        """A number without scatter: a count, or an identity."""
        return cls(value, (value, value), note)


def verdict(measured: Measurement | None, criterion: Criterion) -> Verdict:
    """Reproduced if the whole interval lies where the criterion holds, partly if the number lies where it partly holds.

    Raises:
        ValueError: the measurement is missing, NaN, or outside of its own interval.
    """
    if measured is None:
        raise ValueError(f"{criterion.quantity}: nothing was measured; a claim measures every quantity it states")
    low, high = measured.interval
    if not low <= measured.value <= high:
        raise ValueError(
            f"{criterion.quantity}: {measured.value} with the interval {low} … {high} is no measurement; it must be a "
            "number inside its interval"
        )
    if low in criterion.holds and high in criterion.holds:
        return "reproduced"
    return "partly" if measured.value in criterion.partly else "not reproduced"


@dataclass(frozen=True)
class Settings:
    """How a claim is measured.

    Args:
        full: the published sizes, where they take long; otherwise small ones.
        seed: of everything drawn.
        device: for what runs on one.
    """

    full: bool = False
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Findings:
    """What measuring a claim gave.

    Args:
        measurements: by the names of the claim's criteria.
        table: the numbers behind them, as text.
        details: the same numbers, for JSON.
        draw: writes the figure to a path; None where there is nothing to draw.
    """

    measurements: Mapping[str, Measurement]
    table: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Claim:
    """A statement of the literature: its criteria by name, and the function that measures them."""

    name: str
    statement: str
    criteria: Mapping[str, Criterion]
    measure: Callable[[Settings], Findings]
