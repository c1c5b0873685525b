"""The scorecard: each claim measured, each criterion with its verdict, as text and as plain values."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from analyses.claims.claim import Claim, Criterion, Findings, Measurement, Settings, Verdict, verdict


@dataclass(frozen=True)
class Row:
    """One criterion of a claim: what is published, what was measured, what follows.

    Args:
        claim: "claim/criterion".
        seconds: that measuring the whole claim took.
        figure: the claim's figure, or None.
    """

    claim: str
    criterion: Criterion
    measurement: Measurement
    verdict: Verdict
    seconds: float
    figure: Path | None

    def __str__(self) -> str:
        low, high = self.measurement.interval
        scatter = "" if low == high else f" [{low:.3g}, {high:.3g}]"
        return "\n".join(
            [
                f"{self.claim}: {self.verdict}",
                f"  {self.criterion.quantity}",
                f"  published  {self.criterion.published} ({self.criterion.place})",
                f"  measured   {self.measurement.value:.4g}{scatter}, asked for {self.criterion.holds}",
                f"  {self.measurement.note}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "quantity": self.criterion.quantity,
            "published": self.criterion.published,
            "place": self.criterion.place,
            "criterion": str(self.criterion.holds),
            "partly": str(self.criterion.partly),
            "measured": self.measurement.value,
            "interval": list(self.measurement.interval),
            "note": self.measurement.note,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 2),
            "figure": None if self.figure is None else str(self.figure),
        }


@dataclass(frozen=True)
class Scored:
    """A claim after measuring: its rows, and the numbers behind them."""

    claim: Claim
    findings: Findings
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        title = f"{self.claim.name}: {self.claim.statement}"
        return "\n\n".join(part for part in (title, self.findings.table, *map(str, self.rows)) if part)


def score(claim: Claim, settings: Settings, figures: Path | None = None) -> Scored:
    """Measure a claim and judge it; with `figures`, draw it there as NAME.png.

    Raises:
        ValueError: a quantity of the claim was not measured, or one that it does not state was.
    """
    start = time.perf_counter()
    findings = claim.measure(settings)
    seconds = time.perf_counter() - start
    if extra := sorted(set(findings.measurements) - set(claim.criteria)):
        raise ValueError(f"{claim.name}: measured {', '.join(extra)}, for which there is no criterion")
    verdicts: dict[str, Verdict] = {
        name: verdict(findings.measurements.get(name), criterion) for name, criterion in claim.criteria.items()
    }
    figure = _draw(claim, findings, figures)
    rows = tuple(
        Row(f"{claim.name}/{name}", criterion, findings.measurements[name], verdicts[name], seconds, figure)
        for name, criterion in claim.criteria.items()
    )
    return Scored(claim, findings, rows)


def table(rows: Sequence[Row]) -> str:
    """One line a row: verdict, claim, measured, asked for."""
    width = max(len(row.claim) for row in rows)
    lines = [
        f"{row.verdict:<14}  {row.claim:<{width}}  {row.measurement.value:>9.4g}  {row.criterion.holds!s:<16}"
        f"  {row.criterion.published}"
        for row in rows
    ]
    counts = {name: sum(row.verdict == name for row in rows) for name in get_args(Verdict)}
    header = f"{'verdict':<14}  {'claim':<{width}}  {'measured':>9}  {'asked for':<16}  published"
    return "\n".join([header, *lines, ", ".join(f"{count} {name}" for name, count in counts.items())])


def _draw(claim: Claim, findings: Findings, figures: Path | None) -> Path | None:
    if figures is None or findings.draw is None:
        return None
    path = figures / f"{claim.name}.png"
    findings.draw(path)
    return path
