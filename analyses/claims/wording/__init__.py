"""What others say of in-context learning as a second-order method, w ← w − η H⁻¹ g, in their own words."""

from functools import partial
from pathlib import Path

from analyses.claims.claim import Findings, Settings
from analyses.claims.plots import draw_curves
from analyses.claims.wording import corrections, counts, hessians, low_rank, online


def measure(settings: Settings) -> Findings:
    return combine(
        [
            counts.measure(counts.FULL if settings.full else counts.Sizes(), settings),
            hessians.damped("eagle-d10"),
            low_rank.measure("eagle-lowrank", 256 if settings.full else 64, settings),
            corrections.measure(32 if settings.full else 8, settings),
            online.measure(online.FULL if settings.full else online.Sizes(), settings),
        ]
    )


def combine(parts: list[Findings]) -> Findings:
    """The parts as one claim; the figure is that of the iteration counts."""
    return Findings(
        {name: value for part in parts for name, value in part.measurements.items()},
        "\n\n".join(part.table for part in parts if part.table),
        {name: value for part in parts for name, value in part.details.items()},
        partial(_draw, parts[0].details["curves"]),
    )


def _draw(curves: dict[str, list[float]], path: Path) -> None:
    drawn = {name: (range(len(errors)), errors) for name, errors in curves.items()}
    title = f"Theory's constants in the texts' settings, d = {counts.D}, κ = {counts.STATED:g}"
    draw_curves(drawn, path, title=title, x="iterations", y="relative error of w, median", marks={"0.02": 0.02})
