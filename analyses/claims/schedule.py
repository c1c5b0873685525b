"""Training finds the best rule of its depth; theory's constants are second order, T₃'s gain a factor 3 a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims import named_constants, trained_schedules
from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.named_constants import LARGER_NORM, NAMED, Constants, best_pair, describe, grids, refined
from analyses.claims.plots import draw_curves
from analyses.claims.systems import error_curve, log_spaced, log_uniform, over_prompts, predicted_errors, rms
from analyses.claims.trained_schedules import Placement, place
from interp.convergence import order
from interp.solvers import EAGLE, T3
from interp.solvers.schedules import PUBLISHED
from models import zoo
from models.prompts import CovarianceFactors

MODELS = ("eagle-depth1", "eagle-depth2", "eagle-depth3", "eagle-d10", "eagle-deep", "eagle")
JUDGED = "eagle-d10"
PUBLISHED_BATCH, PUBLISHED_STEPS = 256, 30
KAPPA = 1e3
LAST_PHASE = 0.1


@dataclass(frozen=True)
class Sizes:
    """Starts of the search for a schedule, points of that for constants, and n = d and prompts of what is iterated."""

    starts: int = 64
    grid: tuple[int, int] = (57, 29)
    d: int = 120
    prompts: int = 8


FULL = Sizes(starts=512, grid=(141, 71), d=240, prompts=32)


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), MODELS, settings)


def measure_at(sizes: Sizes, models: Sequence[str], settings: Settings) -> Findings:
    found = [place(name, sizes.starts, settings.seed) for name in models if name in zoo.names()]
    placed = [model for model in found if model is not None]
    best = refined(best_pair(*grids(sizes.grid)), 0.03, 13)
    constants = {name: describe(*pair) for name, pair in {**NAMED, f"best found {_pair(best)}": best}.items()}
    return Findings(
        {
            "bounded": _bounded(next(model for model in placed if model.name == JUDGED)),
            **_iterated(sizes, settings),
            "t3-rate": t3_rate(layers=8, points=20_001),
        },
        "\n\n".join([trained_schedules.text(placed), named_constants.text(constants)]),
        _details(placed, constants),
        partial(_draw, {name: (pair.eta, pair.gamma) for name, pair in constants.items()}),
    )


def _pair(pair: tuple[float, float]) -> str:
    return f"({-pair[0]:.3g}, {pair[1]:.3g})"


def _bounded(model: Placement) -> Measurement:
    found = model.found
    note = (
        f"{model.error:.3e} over {found.error:.3e}, rms on the training spectrum (σ = 1, 1/κ, the others log-uniform); "
        f"{found.starts} starts and the trained schedule, in the basin of optimum {model.basin} (0 is the best) of "
        f"{len(found.optima)}. The best polynomial of that degree has {found.bound:.2e}, "
        f"{model.error / found.bound:.3g} times less: {found.depth} layers have only {2 * found.depth - 1} numbers."
    )
    return Measurement.exact(model.ratio, note)


def _iterated(sizes: Sizes, settings: Settings) -> dict[str, Measurement]:
    """Order of theory's constants, and the floor of the published ones, on matrices."""
    system = log_uniform(KAPPA, (sizes.d, sizes.d), sizes.prompts, settings.seed, device=settings.device)
    where = f"n = d = {sizes.d}, κ = {KAPPA:g}, {sizes.prompts} prompts, seed {settings.seed}"
    theory = order(error_curve(EAGLE(), system, 26), below=LAST_PHASE)
    published = error_curve(EAGLE(*PUBLISHED), system, PUBLISHED_STEPS)
    middle, worst = in_a_batch(PUBLISHED_BATCH, PUBLISHED_STEPS, settings.seed)
    note = (
        f"Least rms error in {PUBLISHED_STEPS} iterations; {where}. |η| = 1 sends the largest singular value to 0 with "
        "|1 − 1.9| = .9 of its error left, every layer another one (a share of w that falls with d). In units of the "
        f"largest norm of a batch of {PUBLISHED_BATCH} published prompts, the median prompt gets to {middle:.1e}, and "
        f"those that set the norm stay at {worst:.1e}; in units of {LARGER_NORM:g} ‖A_l‖ all converge, linearly."
    )
    return {
        "theory-order": Measurement(
            theory.value,
            (theory.low, theory.high),
            f"Regression over {theory.points} pairs of errors from {theory.largest:.1e} to {theory.smallest:.1e}; "
            f"{where}.",
        ),
        "published-floor": over_prompts(lambda chosen: rms(chosen).amin(0), published, note, settings.seed),
    }


def in_a_batch(prompts: int, steps: int, seed: int) -> tuple[float, float]:
    """Median and largest error of prompts of the published family under the published constants, in units of the
    largest current norm of the batch: the reading in which they are published."""
    family = CovarianceFactors()
    sigma = torch.linalg.svdvals(family.sample(prompts, seed=seed).A)[:, : family.rank]
    error = torch.ones_like(sigma)
    for _ in range(steps):
        square = (sigma / sigma.max()).square()
        error, sigma = error * (1 - PUBLISHED[1] * square), (sigma * (1 + PUBLISHED[0] * square)).abs()
    return float(rms(error).median()), float(rms(error).max())


def t3_rate(layers: int, points: int) -> Measurement:
    """sup |σ r_l| over σ in [0, 1], layer by layer, each layer in units of the norm that it finds."""
    sigma = torch.linspace(0, 1, points, dtype=torch.float64)
    image, error, sups = sigma, torch.ones_like(sigma), []
    for _ in range(layers):
        square = (image / image.abs().max()).square()
        error, image = error * (1 - T3[1] * square), image * (1 + T3[0] * square)
        sups.append(float((sigma * error).abs().max()))
    ratios = [after / before for before, after in zip([1.0, *sups], sups, strict=False)]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1 / 3))
    note = (
        f"The ratio farthest from 1/3 of {layers} layers, on {points} points. The error of w is σ r over σ: at σ = 1/κ "
        "little is gained before layer log₃ κ, after that the same 1/3 a layer."
    )
    return Measurement(worst, (min(ratios), max(ratios)), note)


def _details(placed: Sequence[Placement], constants: Mapping[str, Constants]) -> dict[str, Any]:
    return {
        "models": {
            model.name: {
                "error": model.error,
                "best": model.found.error,
                "bound": model.found.bound,
                "basin": model.basin,
                "sup": model.worst,
                "sup bound": model.worst_bound,
                "kappa": model.found.kappa,
                "schedule": [model.found.eta, model.found.gamma],
                "optima": len(model.found.optima),
            }
            for model in placed
        },
        "constants": {name: asdict(pair) for name, pair in constants.items()},
    }


def curves(pairs: Mapping[str, tuple[float, float]], steps: int) -> dict[str, Float[Tensor, " step"]]:
    """rms errors of pairs of constants at `KAPPA`."""
    sigma = log_spaced(KAPPA, named_constants.VALUES)
    return {name: predicted_errors(sigma, *pair, steps) for name, pair in pairs.items()}


def _draw(pairs: Mapping[str, tuple[float, float]], path: Path) -> None:
    drawn = {}
    for name, errors in curves(pairs, 32).items():
        kept = (errors > 1e-15).nonzero()[:, 0].tolist()
        drawn[name] = (kept, errors[kept].tolist())
    title = f"EAGLE with constant (|η|, γ), κ = {KAPPA:g}"
    draw_curves(drawn, path, title=title, x="iterations", y="relative rms error of w", marks={"1e-8": 1e-8})
