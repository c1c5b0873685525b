"""With noise on the labels, stopping EAGLE early regularises, as well as ridge regression does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Settings
from analyses.claims.fits import median
from analyses.claims.plots import draw_curves
from analyses.claims.rivals import log_left
from analyses.claims.systems import NOISE as NOISE_STREAM
from analyses.claims.systems import System, error_curve, log_uniform, rms
from interp.solvers import EAGLE, ConjugateGradient, LeastSquares
from interp.solvers.seeds import mixed

KAPPA = 1e3
NOISE = 0.01  # of the labels' rms
NOISES = (0.001, 0.01, 0.1)
STEPS = 32
CG_STEPS = 700
PENALTIES = torch.logspace(-10, 1, 221, dtype=torch.float64).tolist()
GD_STEPS = torch.logspace(0, 9, 181, dtype=torch.float64).tolist()

Best = Float[Tensor, " prompt"]


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of w by prompt: along EAGLE's steps, of the least-squares solution, and the best along other paths."""

    curve: Float[Tensor, "step prompt"]
    solution: Best
    ridge: Best
    cg: Best
    gd: Best

    @property
    def best(self) -> Best:
        return self.curve.amin(0)

    @property
    def settled(self) -> Best:
        """EAGLE's last iterate."""
        return self.curve[-1]


def measure(settings: Settings) -> Findings:
    return measure_at(240, 64 if settings.full else 10, settings)


def measure_at(d: int, prompts: int, settings: Settings) -> Findings:
    clean = log_uniform(KAPPA, (d, d), prompts, settings.seed, device=settings.device)
    found = {noise: errors_of(noisy(clean, noise, settings.seed)) for noise in NOISES}
    at, seed = found[NOISE], settings.seed
    where = f"n = d = {d}, κ = {KAPPA:g}, {prompts} prompts, seed {seed}; σ relative to the labels' rms"
    gains = {noise: float((errors.settled / errors.best).median()) for noise, errors in found.items()}
    prices = {noise: float((errors.best / errors.ridge).median()) for noise, errors in found.items()}
    return Findings(
        {
            "early-stopping": median(
                at.settled / at.best,
                f"Median ratio, each prompt at its own best step (an oracle); {where}. {_others(gains)}",
                seed,
            ),
            "over-ridge": median(
                at.best / at.ridge,
                f"Median ratio, each prompt at its own best step and its own best penalty of {len(PENALTIES)}; "
                f"{where}. {_others(prices)}",
                seed,
            ),
        },
        _table(found),
        {f"{noise:g}": {**_medians(errors), "curve": rms(errors.curve).tolist()} for noise, errors in found.items()},
        partial(_draw, found),
    )


def noisy(clean: System, noise: float, seed: int) -> System:
    """White noise on the labels, of a size relative to the rms of each prompt's labels; `exact` stays the truth."""
    C = clean.problem.C
    generator = torch.Generator().manual_seed(mixed(seed, NOISE_STREAM))
    drawn = torch.randn(C.shape, generator=generator, dtype=torch.float64).to(C)
    return System(
        LeastSquares(clean.problem.A, C + noise * C.square().mean(1, keepdim=True).sqrt() * drawn), clean.exact
    )


def errors_of(system: System) -> Errors:
    spectrum = Spectrum.of(system)
    solution = torch.linalg.lstsq(system.problem.A, system.problem.C).solution
    return Errors(
        error_curve(EAGLE(), system, STEPS),
        system.error(solution).cpu(),
        spectrum.errors(spectrum.ridge(PENALTIES)).amin(0),
        error_curve(ConjugateGradient(), system, CG_STEPS).amin(0),
        spectrum.errors(spectrum.descent(GD_STEPS)).amin(0),
    )


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What methods that filter singular values need, in coordinates along the right singular vectors of a square A:
    g = σ², falling, the least-squares solution and the true w [prompt, value]."""

    g: Float[Tensor, "prompt value"]
    solution: Float[Tensor, "prompt value"]
    exact: Float[Tensor, "prompt value"]

    @classmethod
    def of(cls, system: System) -> "Spectrum":
        U, sigma, V = torch.linalg.svd(system.problem.A, full_matrices=False)
        along = (U.mT @ system.problem.C)[..., 0] / sigma
        return cls(sigma.square(), along, (V @ system.exact)[..., 0])

    def ridge(self, penalties: Sequence[float]) -> Float[Tensor, "filter prompt value"]:
        """g/(g + λ)."""
        return torch.stack([self.g / (self.g + penalty) for penalty in penalties])

    def descent(self, steps: Sequence[float]) -> Float[Tensor, "filter prompt value"]:
        """1 − (1 − ηg)^k with η = 1/g_max."""
        left = log_left(self.g / self.g[:, :1])
        return torch.stack([-torch.expm1(count * left) for count in steps])

    def errors(self, shares: Float[Tensor, "filter prompt value"]) -> Float[Tensor, "filter prompt"]:
        """Relative errors of w that keeps these shares of the least-squares solution."""
        return ((shares * self.solution - self.exact).norm(dim=2) / self.exact.norm(dim=1)).cpu()


def _others(ratios: Mapping[float, float]) -> str:
    return "; ".join(f"{ratio:.3g} at σ = {noise:g}" for noise, ratio in ratios.items() if noise != NOISE) + "."


def _table(found: Mapping[float, Errors]) -> str:
    names = ("EAGLE, converged", "EAGLE, best step", "ridge", "CG", "GD")
    lines = [
        f"median relative error of w, each at its best step or penalty (CG: of {CG_STEPS} steps)",
        f"{'σ':<8}" + "".join(map("{:>18}".format, names)),
    ]
    for noise, errors in found.items():
        medians = _medians(errors)
        steps = errors.curve.argmin(0)
        cells = [f"{medians[name]:.4f}" for name in ("settled", "best", "ridge", "cg", "gd")]
        cells[1] += f" ({int(steps.min())}–{int(steps.max())})"
        lines.append(f"{noise:<8g}" + "".join(map("{:>18}".format, cells)))
    return "\n".join(lines)


def _medians(errors: Errors) -> dict[str, float]:
    return {
        name: float(getattr(errors, name).median()) for name in ("settled", "best", "solution", "ridge", "cg", "gd")
    }


def _draw(found: Mapping[float, Errors], path: Path) -> None:
    curves = {f"σ = {noise:g}": (range(STEPS + 1), rms(errors.curve).tolist()) for noise, errors in found.items()}
    marks = {f"ridge, σ = {noise:g}": float(rms(errors.ridge)) for noise, errors in found.items()}
    title = f"EAGLE (1/3, 1) with noise on the labels, κ = {KAPPA:g}"
    draw_curves(curves, path, title=title, x="iterations", y="relative rms error of w", marks=marks)
