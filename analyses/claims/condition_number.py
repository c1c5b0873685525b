"""EAGLE's iterations grow with log κ, and are orders of magnitude fewer than those of first-order methods."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap, exponent
from analyses.claims.plots import draw_curves
from analyses.claims.rivals import PRODUCTS, cg_in_exact_arithmetic, descent_counts
from analyses.claims.systems import System, error_curve, first_below, log_uniform
from interp.solvers import EAGLE, ConjugateGradient

KAPPAS = (1e2, 1e3, 1e4, 1e5)
CG_KAPPA, GD_KAPPA = 1e4, 1e3
TOLERANCE = 1e-6
EAGLE_STEPS = 60


@dataclass(frozen=True)
class Sizes:
    """n = d, prompts a κ, and the most steps of conjugate gradients; at κ = 1e5 a quarter of them."""

    d: int = 240
    prompts: int = 3
    cg_steps: int = 20_000

    def cg_limit(self, kappa: float) -> int:
        return self.cg_steps if kappa <= CG_KAPPA else self.cg_steps // 4


FULL = Sizes(prompts=16, cg_steps=100_000)
Counts = Mapping[str, Float[Tensor, " prompt"]]


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), settings)


def measure_at(sizes: Sizes, settings: Settings) -> Findings:
    counts = {kappa: _counts(kappa, sizes, settings) for kappa in KAPPAS}
    where = f"n = d = {sizes.d}, {sizes.prompts} prompts a κ, seed {settings.seed}"
    eagle = torch.stack([counts[kappa]["EAGLE"] for kappa in KAPPAS])
    return Findings(
        {
            "growth": exponent(KAPPAS, eagle, _growth_note(eagle, where), settings.seed),
            "over-cg": _ratio(counts[CG_KAPPA], "CG", _cg_note(counts[CG_KAPPA], sizes, where), settings.seed),
            "over-gd": _ratio(
                counts[GD_KAPPA],
                "GD",
                f"Medians over prompts; {where}. Descent by its closed form (1 − ηg)^k with η = 2/(g_min + g_max).",
                settings.seed,
            ),
        },
        _table(counts, sizes),
        {f"{kappa:g}": {name: values.tolist() for name, values in of.items()} for kappa, of in counts.items()}
        | {"sizes": asdict(sizes)},
        partial(_draw, counts, sizes),
    )


def _counts(kappa: float, sizes: Sizes, settings: Settings) -> Counts:
    """Iterations of each prompt by method; conjugate gradients that do not arrive count as one more than they got."""
    system = log_uniform(kappa, (sizes.d, sizes.d), sizes.prompts, settings.seed, device=settings.device)
    return {
        "EAGLE": _iterated(EAGLE(), system, EAGLE_STEPS),
        "CG": _iterated(ConjugateGradient(), system, sizes.cg_limit(kappa)),
        "CG, exact arithmetic": cg_in_exact_arithmetic(system, TOLERANCE),
        "GD": descent_counts(system, TOLERANCE),
    }


def _iterated(solver: EAGLE | ConjugateGradient, system: System, steps: int) -> Float[Tensor, " prompt"]:
    return first_below(error_curve(solver, system, steps, until=TOLERANCE), TOLERANCE).double()


def _ratio(counts: Counts, rival: str, note: str, seed: int) -> Measurement:
    """Median iterations of the rival over EAGLE's, prompts resampled."""
    ratios = counts[rival] / counts["EAGLE"]
    return bootstrap(lambda chosen: chosen.quantile(0.5, -1), ratios, note, seed)


def _growth_note(eagle: Float[Tensor, "kappa prompt"], where: str) -> str:
    slope = _per_decade(eagle)
    return (
        f"Slope of log iterations over log κ; {where}. In log κ they grow by {slope:.2f} a decade; theory's factor "
        "3/2 a step for the smallest singular value says 5.68."
    )


def _per_decade(eagle: Float[Tensor, "kappa prompt"]) -> float:
    decades = torch.tensor(KAPPAS, dtype=torch.float64).log10()
    centred = decades - decades.mean()
    return float((centred @ eagle.mean(1)) / centred.square().sum())


def _cg_note(counts: Counts, sizes: Sizes, where: str) -> str:
    short = int((counts["CG"] > sizes.cg_steps).sum())
    bound = f"; {short} of {sizes.prompts} had not arrived and count as a lower bound" if short else ""
    eagle, cg, exact = (_median(counts[name]) for name in ("EAGLE", "CG", "CG, exact arithmetic"))
    return (
        f"Medians over prompts; conjugate gradients on the normal equations in float64, at most {sizes.cg_steps} "
        f"steps{bound}; {where}. Rounding makes most of it: in exact arithmetic they end after {exact:.0f} steps, "
        f"{exact / eagle:.1f} times EAGLE's. And an iteration of EAGLE is {PRODUCTS} products of "
        "matrices, one of theirs a matrix times a vector: at equal multiplications the ratio is "
        f"{cg / (PRODUCTS * sizes.d * eagle):.2f}."
    )


def _table(counts: Mapping[float, Counts], sizes: Sizes) -> str:
    """Median iterations by κ and method."""
    names = list(next(iter(counts.values())))
    lines = ["iterations to 1e-6, median over prompts", "κ       " + "".join(f"{name:>22}" for name in names)]
    for kappa, of in counts.items():
        cells = [_cell(of[name], sizes.cg_limit(kappa) if name == "CG" else None) for name in names]
        lines.append(f"{kappa:<8.0e}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


def _cell(values: Float[Tensor, " prompt"], limit: int | None) -> str:
    middle = _median(values)
    return f"> {limit}" if limit is not None and middle > limit else f"{middle:.4g}"


def _draw(counts: Mapping[float, Counts], sizes: Sizes, path: Path) -> None:
    """Without the κ at which conjugate gradients had not arrived."""
    curves = {
        name: [
            (kappa, _median(of[name]))
            for kappa, of in counts.items()
            if name != "CG" or _median(of[name]) <= sizes.cg_limit(kappa)
        ]
        for name in counts[KAPPAS[0]]
    }
    drawn = {name: ([x for x, _ in points], [y for _, y in points]) for name, points in curves.items()}
    title = "Iterations to a relative error of 1e-6"
    draw_curves(drawn, path, title=title, x="κ(A)", y="iterations, median over prompts", log_x=True)


def _median(values: Float[Tensor, " prompt"]) -> float:
    return float(values.quantile(0.5))
