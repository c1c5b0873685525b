"""EAGLE with one (|η|, γ) in all layers, in units of 1/‖A_l‖²: the named pairs, and the best that a search finds."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import first_below, log_spaced, predicted_errors
from interp.convergence import Estimate, order, rate
from interp.solvers import T3, THEORY
from interp.solvers.schedules import PUBLISHED

KAPPAS = (1e1, 1e2, 1e3, 1e4, 1e5)
TOLERANCE = 1e-8
VALUES = 400
STEPS = 60
LAST_PHASE = 0.1
LARGER_NORM = 1.1  # of the published pair's other reading: a norm larger than the prompt's

NAMED = {
    "theory (1/3, 1)": THEORY,
    "published (1, 1.9)": PUBLISHED,
    f"published, {LARGER_NORM:g} ‖A_l‖": (PUBLISHED[0] / LARGER_NORM**2, PUBLISHED[1] / LARGER_NORM**2),
    "T₃ (4/3, 4/3)": T3,
}


@dataclass(frozen=True)
class Constants:
    """A pair (η, γ), and what it does at each κ to a spectrum of `VALUES` equally spaced log σ.

    Args:
        counts: iterations to a relative error of 1e-8; None for never in `STEPS`.
        floors: the least error.
        order, rate: at κ = 1e3 over errors below 0.1, or None where it gets no lower.
    """

    eta: float
    gamma: float
    counts: Mapping[float, int | None]
    floors: Mapping[float, float]
    order: Estimate | None
    rate: Estimate | None


def describe(eta: float, gamma: float) -> Constants:
    """Order, rate and iterations of a pair, from the recursion in scalars."""
    curves = {kappa: predicted_errors(log_spaced(kappa, VALUES), eta, gamma, STEPS) for kappa in KAPPAS}
    counts = {kappa: int(first_below(curve, TOLERANCE)) for kappa, curve in curves.items()}
    last = curves[1e3][:, None]
    falls = int((last < LAST_PHASE).sum()) > 2 and float(last.min()) < TOLERANCE
    return Constants(
        eta,
        gamma,
        {kappa: count if count <= STEPS else None for kappa, count in counts.items()},
        {kappa: float(curve.min()) for kappa, curve in curves.items()},
        order(last, below=LAST_PHASE) if falls else None,
        rate(last, below=LAST_PHASE) if falls else None,
    )


def best_pair(etas: Float[Tensor, " eta"], gammas: Float[Tensor, " gamma"]) -> tuple[float, float]:
    """The pair of a grid with the fewest iterations to 1e-8, summed over κ; fractions by log-linear interpolation."""
    pairs = torch.cartesian_prod(etas, gammas)
    total = torch.zeros(len(pairs), dtype=torch.float64)
    for kappa in KAPPAS:
        sigma = log_spaced(kappa, VALUES).expand(len(pairs), -1)
        total += fractional_counts(predicted_errors(sigma, -pairs[:, :1], pairs[:, 1:], STEPS // 2), TOLERANCE)
    eta, gamma = pairs[int(total.argmin())].tolist()
    return -eta, gamma


def fractional_counts(errors: Float[Tensor, "step *set"], tolerance: float) -> Float[Tensor, "*set"]:
    """Where log error, drawn as a line between steps, crosses the tolerance; how many steps there are if nowhere."""
    first = first_below(errors, tolerance).clamp(min=1, max=len(errors) - 1)
    after, before = (errors.gather(0, (first - back)[None])[0].clamp(min=1e-300).log() for back in (0, 1))
    level = torch.tensor(tolerance, dtype=errors.dtype).log()
    crossing = first - 1 + (before - level) / (before - after)
    return torch.where(errors.amin(0) <= tolerance, crossing, len(errors))


def refined(start: tuple[float, float], width: float, points: int) -> tuple[float, float]:
    """The best pair of a finer grid around a pair."""
    offsets = torch.linspace(-width, width, points, dtype=torch.float64)
    return best_pair(-start[0] + offsets, start[1] + offsets)


def text(found: Mapping[str, Constants]) -> str:
    """A line a pair: order and rate at κ = 1e3, iterations by κ."""
    header = f"{'(|η|, γ) in 1/‖A_l‖²':<28}{'order':>7}{'rate':>10}" + "".join(f"{f'κ = {k:.0e}':>24}" for k in KAPPAS)
    lines = [f"iterations to a relative error of {TOLERANCE:g}; order and rate at κ = 1e3 below {LAST_PHASE:g}", header]
    for name, pair in found.items():
        of, at = (f"{fit.value:.3g}" if fit else "–" for fit in (pair.order, pair.rate))
        cells = [_cell(pair.counts[kappa], pair.floors[kappa]) for kappa in KAPPAS]
        lines.append(f"{name:<28}{of:>7}{at:>10}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _cell(count: int | None, floor: float) -> str:
    return f"never, floor = {floor:.1e}" if count is None else str(count)


def grids(sizes: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """|η| over [.2, 1.6] and γ over [.8, 1.5]."""
    return (
        torch.linspace(0.2, 1.6, sizes[0], dtype=torch.float64),
        torch.linspace(0.8, 1.5, sizes[1], dtype=torch.float64),
    )
