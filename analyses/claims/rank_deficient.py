"""EAGLE converges on matrices without full rank, to the solution of least norm, as fast as on those with full rank."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Settings
from analyses.claims.plots import draw_curves
from analyses.claims.systems import NOISE, System, error_curve, first_below, log_uniform, over_prompts, rms
from interp.solvers import EAGLE, LeastSquares
from interp.solvers.seeds import mixed

SIZE = 240
KAPPA = 100.0
STEPS = 40
TOLERANCE = 1e-8
OUTSIDE = 0.1  # size of the labels' part outside the range of A, relative to the part inside

Curves = Mapping[str, Float[Tensor, "step prompt"]]


def measure(settings: Settings) -> Findings:
    return measure_at(SIZE, 32 if settings.full else 4, settings)


def measure_at(size: int, prompts: int, settings: Settings) -> Findings:
    curves = curves_of(size, prompts, settings)
    deficient, outside = curves["half the rank"], curves["half the rank, labels outside"]
    where = f"n = d = {size}, rank {size // 2}, κ = {KAPPA:g}, {prompts} prompts, seed {settings.seed}"
    return Findings(
        {
            "error": over_prompts(lambda chosen: rms(chosen).amin(0), deficient, _note(outside, where), settings.seed),
            "iterations": over_prompts(
                _ratio,
                torch.cat([deficient, curves["full rank"]]),
                f"Steps of the rms error to {TOLERANCE:g} over those of prompts of full rank; {where}.",
                settings.seed,
            ),
        },
        _table(curves),
        {name: rms(errors).tolist() for name, errors in curves.items()},
        partial(_draw, curves),
    )


def curves_of(size: int, prompts: int, settings: Settings) -> Curves:
    """Errors of the three kinds of prompts, to the solution of least norm."""
    full = log_uniform(KAPPA, (size, size), prompts, settings.seed, device=settings.device)
    half = log_uniform(KAPPA, (size, size), prompts, settings.seed, rank=size // 2, device=settings.device)
    systems = {"full rank": full, "half the rank": half, "half the rank, labels outside": _outside(half, settings.seed)}
    return {name: error_curve(EAGLE(), system, STEPS) for name, system in systems.items()}


def _outside(system: System, seed: int) -> System:
    """The same system with a part of the labels outside the range of A, which does not change the solution."""
    A, C = system.problem.A, system.problem.C
    beyond = torch.linalg.svd(A).U[:, :, A.shape[1] // 2 :]
    generator = torch.Generator().manual_seed(mixed(seed, NOISE))
    drawn = torch.randn(beyond.shape[0], beyond.shape[2], 1, generator=generator)
    part = beyond @ drawn.to(A)
    part = OUTSIDE * part * C.norm(dim=1, keepdim=True) / part.norm(dim=1, keepdim=True)
    return System(LeastSquares(A, C + part), system.exact)


def _ratio(stacked: Float[Tensor, "step *resample prompt"]) -> Tensor:
    """Of two groups of curves, one below the other."""
    deficient, full = (first_below(rms(errors), TOLERANCE) for errors in stacked.chunk(2))
    return deficient / full


def _note(outside: Float[Tensor, "step prompt"], where: str) -> str:
    errors = rms(outside)
    return (
        f"Least rms error over {STEPS} iterations; {where}; labels C = A w. With a part of the labels outside the "
        f"range of A ({OUTSIDE:g} of their size) the least error is {float(errors.amin()):.1e}, at step "
        f"{int(errors.argmin())}, but rounding in the null space then grows in w by 9/4 a step, to "
        f"{float(errors[-1]):.1e} at step {STEPS}: stop when the error has settled."
    )


def _table(curves: Curves) -> str:
    lines = ["relative rms error to the solution of least norm", "step  " + "".join(f"{name:>32}" for name in curves)]
    for step in range(0, STEPS + 1, 4):
        lines.append(f"{step:>4}  " + "".join(f"{float(rms(errors)[step]):>32.2e}" for errors in curves.values()))
    counts = [int(first_below(rms(errors), TOLERANCE)) for errors in curves.values()]
    return "\n".join([*lines, "to 1e-8" + "".join(f"{count:>{32 - (i == 0)}}" for i, count in enumerate(counts))])


def _draw(curves: Curves, path: Path) -> None:
    drawn = {name: (range(STEPS + 1), rms(errors).tolist()) for name, errors in curves.items()}
    title = f"EAGLE (1/3, 1) at half and at full rank, κ = {KAPPA:g}"
    draw_curves(drawn, path, title=title, x="iterations", y="relative rms error of w")
