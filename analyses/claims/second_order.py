"""With theory's constants EAGLE converges with second order on full batches, as its scalar recursion predicts."""

from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.plots import draw_curves
from analyses.claims.systems import (
    error_curve,
    first_below,
    log_spaced,
    log_uniform,
    over_prompts,
    predicted_errors,
    rms,
)
from interp.convergence import Estimate, order
from interp.solvers import EAGLE, THEORY

SIZE = 240
KAPPA = 100.0
STEPS = 20
TOLERANCE = 1e-8
LAST_PHASE = 0.1  # errors below which the steps count as the last phase


def measure(settings: Settings) -> Findings:
    return measure_at(SIZE, 64 if settings.full else 8, settings)


def measure_at(size: int, prompts: int, settings: Settings) -> Findings:
    system = log_uniform(KAPPA, (size, size), prompts, settings.seed, device=settings.device)
    errors = error_curve(EAGLE(), system, STEPS)
    predicted = predicted_errors(log_spaced(KAPPA, size), *THEORY, STEPS)
    last, whole = order(errors, below=LAST_PHASE), order(errors)
    sizes = f"n = d = {size}, {prompts} prompts with log-uniform singular values, seed {settings.seed}"
    return Findings(
        {
            "order": Measurement(
                last.value,
                (last.low, last.high),
                f"Regression of log e_k+1 on log e_k over {last.points} pairs of errors from {last.largest:.1e} to "
                f"{last.smallest:.1e}; {sizes}. Over all errors below 0.5 it is {whole.value:.2f}: the order rises "
                "from 1, while small singular values grow by 3/2 a step, to 2.",
            ),
            "iterations": _iterations(errors, predicted, sizes, settings.seed),
        },
        _table(errors, predicted, last, whole),
        {"errors": errors.tolist(), "predicted": predicted.tolist(), "order": last.to_dict(), "all": whole.to_dict()},
        partial(_draw, errors, predicted),
    )


def _iterations(
    errors: Float[Tensor, "step prompt"], predicted: Float[Tensor, " step"], sizes: str, seed: int
) -> Measurement:
    """Steps of the rms error over steps of the recursion."""
    expected = int(first_below(predicted, TOLERANCE))
    note = (
        f"Steps of the rms error to {TOLERANCE:g} over {expected}, those of σ ← σ(1 − σ²/3ν²), r ← r(1 − σ²/ν²) on "
        f"equally spaced log σ; {sizes}. With the interval of whole steps, prompts resampled."
    )
    return over_prompts(lambda chosen: first_below(rms(chosen), TOLERANCE) / expected, errors, note, seed)


def _table(
    errors: Float[Tensor, "step prompt"], predicted: Float[Tensor, " step"], last: Estimate, whole: Estimate
) -> str:
    """Step by step: measured, predicted, and the exponent of three errors in a row."""
    measured = rms(errors)
    logs = measured.log()
    lines = ["step  measured   recursion  local order"]
    for step, (found, expected) in enumerate(zip(measured.tolist(), predicted.tolist(), strict=True)):
        local = "" if step < 2 else f"{(logs[step] - logs[step - 1]) / (logs[step - 1] - logs[step - 2]):8.2f}"
        lines.append(f"{step:>4}  {found:.2e}   {expected:.2e}   {local}")
        if found <= TOLERANCE:
            break
    return "\n".join([*lines, f"last phase: {last}", f"below 0.5:  {whole}"])


def _draw(errors: Float[Tensor, "step prompt"], predicted: Float[Tensor, " step"], path: Path) -> None:
    steps = list(range(len(errors)))
    curves = {"EAGLE, rms over prompts": (steps, rms(errors).tolist())}
    kept = torch.arange(len(predicted))[predicted > torch.finfo(predicted.dtype).eps]
    curves["recursion in scalars"] = (kept.tolist(), predicted[kept].tolist())
    title = f"EAGLE (1/3, 1) at n = d = {SIZE}, κ = {KAPPA:g}"
    draw_curves(curves, path, title=title, x="iterations", y="relative error of w", marks={"1e-8": TOLERANCE})
