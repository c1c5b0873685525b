"""Sketches of rank r cost EAGLE n/r times the iterations, each of which takes r/n of the time."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import exponent
from analyses.claims.plots import draw_curves
from analyses.claims.systems import error_curve, first_below, log_uniform
from interp.solvers import T3, THEORY, LeastSquares, SketchedEAGLE

SHARES = (1, 2, 4, 8)  # n/r
KAPPA = 100.0
TOLERANCE = 1e-6
TIMED = 1024
CONSTANTS = {"theory (1/3, 1)": THEORY, "T₃ (4/3, 4/3)": T3}


@dataclass(frozen=True)
class Sizes:
    """n = d, prompts, the most iterations; n = d of the timing and how many iterations it repeats."""

    n: int = 64
    prompts: int = 8
    steps: int = 1500
    timed: int = TIMED
    repeats: int = 4


FULL = Sizes(n=240, prompts=16, steps=6000, repeats=20)
Counts = Mapping[int, Float[Tensor, "prompt"]]


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), settings)


def measure_at(sizes: Sizes, settings: Settings) -> Findings:
    counts = {name: _counts(pair, sizes, settings) for name, pair in CONSTANTS.items()}
    timed = log_uniform(KAPPA, (sizes.timed, sizes.timed), 1, settings.seed, device=settings.device).problem
    seconds = {share: _seconds(SketchedEAGLE(sizes.timed // share), timed, sizes.repeats) for share in SHARES}
    return Findings(
        {"iterations": _iterations(counts, sizes, settings), "time": _time(seconds, sizes)},
        _table(counts, seconds),
        {
            "sizes": asdict(sizes),
            "iterations": {name: {str(s): c.tolist() for s, c in of.items()} for name, of in counts.items()},
            "seconds": {str(share): values for share, values in seconds.items()},
        },
        partial(_draw, counts),
    )


def _counts(pair: tuple[float, float], sizes: Sizes, settings: Settings) -> Counts:
    """Iterations by n/r."""
    system = log_uniform(KAPPA, (sizes.n, sizes.n), sizes.prompts, settings.seed, device=settings.device)
    counts = {}
    for share in SHARES:
        solver = SketchedEAGLE(sizes.n // share, *pair, seed=settings.seed)
        counts[share] = first_below(error_curve(solver, system, sizes.steps, until=TOLERANCE), TOLERANCE).double()
    return counts


def _iterations(counts: Mapping[str, Counts], sizes: Sizes, settings: Settings) -> Measurement:
    slopes = {name: _slope(of, SHARES, settings.seed).value for name, of in counts.items()}
    theory, t3 = counts.values()
    first = float(theory[2].quantile(0.5) / theory[1].quantile(0.5))
    note = (
        f"Slope of log iterations to {TOLERANCE:g} over log n/r with theory's constants; n = d = {sizes.n}, "
        f"κ = {KAPPA:g}, {sizes.prompts} prompts, a new frame each step, seed {settings.seed}. The first halving costs "
        f"{first:.1f} times, as any sketch ends second order; from n/2 to n/8 the slope is "
        f"{_slope(theory, SHARES[1:], settings.seed).value:.2f}, and with T₃, which is linear at r = n already, it is "
        f"{list(slopes.values())[1]:.2f} over all r ({float(t3[8].quantile(0.5)):.0f} iterations at n/8)."
    )
    return _slope(theory, SHARES, settings.seed, note)


def _slope(counts: Counts, shares: tuple[int, ...], seed: int, note: str = "") -> Measurement:
    return exponent(shares, torch.stack([counts[share] for share in shares]), note, seed)


def _seconds(solver: SketchedEAGLE, problem: LeastSquares, repeats: int) -> list[float]:
    """Wall time of single iterations, after one that is not counted."""
    state, seconds = solver.step(problem, solver.start(problem)), []
    for _ in range(repeats):
        start = time.perf_counter()
        state = solver.step(problem, state)
        float(state["w"].sum())  # waits for the device
        seconds.append(time.perf_counter() - start)
    return seconds


def _time(seconds: Mapping[int, list[float]], sizes: Sizes) -> Measurement:
    """Ratio of medians; from fastest over slowest to slowest over fastest."""
    full, least = seconds[1], seconds[SHARES[-1]]
    value = statistics.median(full) / statistics.median(least)
    note = (
        f"Ratio of medians over {sizes.repeats} iterations at n = d = {sizes.timed}, {torch.get_num_threads()} "
        "thread(s), the norm and the frame included; the interval is that of extremes."
    )
    return Measurement(value, (min(full) / max(least), max(full) / min(least)), note)


def _table(counts: Mapping[str, Counts], seconds: Mapping[int, list[float]]) -> str:
    """By n/r: median iterations of each rule, seconds an iteration, and what that makes in all."""
    head = "n/r " + "".join(f"{name:>18}" for name in counts) + f"{'s/iteration':>14}{'theory, in all':>18}"
    lines = [f"iterations to {TOLERANCE:g}, median over prompts", head]
    for share, values in seconds.items():
        steps = [float(of[share].quantile(0.5)) for of in counts.values()]
        each = statistics.median(values)
        cells = "".join(f"{step:>18.4g}" for step in steps)
        lines.append(f"{share:<4}" + cells + f"{each:>14.3g}{each * steps[0]:>18.3g}")
    return "\n".join(lines)


def _draw(counts: Mapping[str, Counts], path: Path) -> None:
    curves = {name: (SHARES, [float(of[s].quantile(0.5)) for s in SHARES]) for name, of in counts.items()}
    start = next(iter(curves.values()))[1][0]
    curves["∝ n/r"] = (SHARES, [start * share for share in SHARES])
    title = f"Sketched EAGLE, κ = {KAPPA:g}, relative error {TOLERANCE:g}"
    draw_curves(curves, path, title=title, x="n/r", y="iterations, median over prompts", log_x=True)
