"""EAGLE is insensitive to its step sizes |η| and γ over [.2, 2]."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from analyses.claims.systems import System, error_curve, first_below, log_uniform
from interp.solvers import EAGLE, THEORY

VALUES = tuple(round(0.2 + 0.05 * i, 2) for i in range(37))
KAPPAS = (1e1, 1e2, 1e3)
KAPPA = 1e2  # of the criterion; the others are in the table
TOLERANCE = 1e-6
FACTOR = 3
STEPS = 80
NAMES = ("eta", "gamma")
SYMBOLS = {"eta": "|η|", "gamma": "γ"}
LABELS = {"eta": "|η|, with γ = 1", "gamma": "γ, with |η| = 1/3"}

Counts = Mapping[str, Float[Tensor, "value prompt"]]


def measure(settings: Settings) -> Findings:
    return measure_at(*((240, 8) if settings.full else (48, 4)), VALUES, settings)


def measure_at(d: int, prompts: int, values: tuple[float, ...], settings: Settings) -> Findings:
    counts = {kappa: _counts(kappa, d, prompts, values, settings) for kappa in KAPPAS}
    where = f"n = d = {d}, κ = {KAPPA:g}, {prompts} prompts, seed {settings.seed}, {len(values)} values"
    return Findings(
        {name: _share(name, counts, values, where, settings.seed) for name in NAMES},
        "\n\n".join(_table(name, counts, values) for name in NAMES),
        {f"{kappa:g}": {name: found.tolist() for name, found in of.items()} for kappa, of in counts.items()},
        partial(_draw, counts[KAPPA], values),
    )


def _counts(kappa: float, d: int, prompts: int, values: tuple[float, ...], settings: Settings) -> Counts:
    system = log_uniform(kappa, (d, d), prompts, settings.seed, device=settings.device)
    return {
        "eta": torch.stack([iterations(-value, THEORY[1], system) for value in values]),
        "gamma": torch.stack([iterations(THEORY[0], value, system) for value in values]),
    }


def iterations(eta: float, gamma: float, system: System) -> Float[Tensor, " prompt"]:
    """Iterations by prompt, inf where `STEPS` are not enough or the solver refuses the values, as it does 2."""
    if eta <= -2 or gamma >= 2:
        return torch.full((system.prompts,), math.inf, dtype=torch.float64)
    errors = error_curve(EAGLE(eta, gamma), system, STEPS, until=TOLERANCE)
    counts = first_below(errors, TOLERANCE).double()
    return torch.where(counts < len(errors), counts, math.inf)


def shares(counts: Float[Tensor, "value prompt"]) -> Float[Tensor, " prompt"]:
    """By prompt, the share of values with at most `FACTOR` times the iterations of the best value."""
    return (counts <= FACTOR * counts.amin(0)).double().mean(0)


def _share(name: str, counts: Mapping[float, Counts], values: tuple[float, ...], where: str, seed: int) -> Measurement:
    found = counts[KAPPA][name].median(1).values
    best, within = found.amin(), [value for value, count in zip(values, found, strict=True) if _near(count, found)]
    elsewhere = ", ".join(
        f"{float(shares(of[name]).mean()):.2f} at κ = {k:g}" for k, of in counts.items() if k != KAPPA
    )
    note = (
        f"{where}. Best {SYMBOLS[name]} = {values[int(found.argmin())]:g} ({best:.0f} iterations); within {FACTOR} "
        f"times that from {min(within):g} to {max(within):g}. The share is {elsewhere}. Near 2, at which "
        f"{SYMBOLS[name]} no longer contracts, the largest singular value falls too slowly."
    )
    return bootstrap(lambda chosen: chosen.mean(-1), shares(counts[KAPPA][name]), note, seed)


def _near(count: Tensor, found: Tensor) -> bool:
    return bool(count <= FACTOR * found.amin())


def _table(name: str, counts: Mapping[float, Counts], values: tuple[float, ...]) -> str:
    """Median iterations by value and κ, every second value."""
    lines = [f"{SYMBOLS[name]:<6}" + "".join(f"{f'κ = {kappa:g}':>12}" for kappa in counts) + "   iterations to 1e-6"]
    for index in range(0, len(values), 2):
        cells = [float(of[name][index].median()) for of in counts.values()]
        text = [f"{f'> {STEPS}' if math.isinf(cell) else f'{cell:g}':>12}" for cell in cells]
        lines.append(f"{values[index]:<6g}" + "".join(text))
    return "\n".join(lines)


def _draw(counts: Counts, values: tuple[float, ...], path: Path) -> None:
    """Values that do not arrive are left out."""
    curves = {}
    for name, found in counts.items():
        middle = found.median(1).values
        pairs = [(value, float(count)) for value, count in zip(values, middle, strict=True) if count.isfinite()]
        curves[LABELS[name]] = ([value for value, _ in pairs], [count for _, count in pairs])
    title = f"Iterations to 1e-6 by step size, κ = {KAPPA:g}"
    draw_curves(curves, path, title=title, x="|η| or γ, in units of 1/‖A_l‖²", y="iterations, median over prompts")
