"""A softmax transformer with ReLU MLPs solves kernel ridge regression: blocks ∝ log 1/ε, width ∝ 1/√ε, for all data."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap, exponent
from analyses.claims.plots import draw_curves
from analyses.claims.richardson_failures import causal, isolated, raised
from interp.gaussian_process import kernel_system, posterior
from interp.solvers import GradientDescent, Preconditioned, iterate, row_sums
from models.constructions import PromptShape, richardson
from models.prompts import GaussianProcess, Prompts

ITERATION = Preconditioned(GradientDescent(1.0), row_sums)
Y_MAX = 4.0


@dataclass(frozen=True)
class Sizes:
    """How much is drawn and built."""

    prompts: int = 128
    networks: int = 32
    points: tuple[int, ...] = (8, 16, 32, 64)
    segments: tuple[int, ...] = (32, 64, 128, 256)
    most_segments: int = 128
    ends: tuple[int, int] = (16, 128)
    wide: int = 2000


GROUPS, MOST_STEPS = 8, 360
FULL = Sizes(1024, 256, (8, 16, 32, 64, 128), (32, 64, 128, 256, 512), 256, (16, 128), 20000)


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    errors = {n: largest_errors(n, 0.1 * n, sizes, settings) for n in (*sizes.ends, 32)}
    fixed = {n: largest_errors(n, 1.6, sizes, settings) for n in sizes.ends}
    by_width = torch.stack([network_errors(16, 1.6, m, sizes, settings) for m in sizes.segments])
    by_points = torch.stack([network_errors(n, 1.6, sizes.most_segments, sizes, settings) for n in sizes.points])
    note = f"RBF of lengthscale 0.3 on [−1, 1], labels clipped to ±{Y_MAX:g}, seed {settings.seed}"
    few = f"{sizes.networks} prompts, {note}"
    grown = f"{sizes.prompts} prompts. The contraction is D_max/(D_max + λ): "
    measurements = {
        "depth": _straightness(errors[32], f"errors from 0.1 to 1e-8, {sizes.prompts} prompts; {note}"),
        "width": exponent(sizes.segments, by_width, f"N = 16, λ = 1.6, m = {sizes.segments}, {few}", settings.seed),
        "width-points": _halved(exponent(sizes.points, by_points, _fixed_width(sizes, note), settings.seed)),
        "depth-points": _growth(errors, sizes, f"{grown}λ ∝ N keeps it, and D_max/N falls a little; {note}"),
        "depth-points-fixed": _growth(fixed, sizes, f"{grown}at fixed λ depth grows like D_max/λ; {note}"),
        "never-diverges": raised(sizes.wide, settings),
        "isolated": isolated(settings),
        "causal": causal(settings),
        "blocks": _blocks(),
    }
    curves = {
        f"N = {n}, λ = {lam}": found for lam, by in (("0.1 N", errors), ("1.6", fixed)) for n, found in by.items()
    }
    details = {
        "largest_error": {name: found.amax(1).tolist() for name, found in curves.items()},
        "by_segments": dict(zip(map(str, sizes.segments), by_width.amax(1).tolist(), strict=True)),
        "by_points": dict(zip(map(str, sizes.points), by_points.amax(1).tolist(), strict=True)),
    }
    return Findings(measurements, _table(details), details, lambda path: _draw(details["largest_error"], path))


def drawn(n: int, lam: float, count: int, settings: Settings) -> Prompts:
    """Prompts with bounded labels."""
    sample = GaussianProcess(n=n, n_query=4, lam=lam).sample(count, seed=settings.seed, device=settings.device)
    tokens = sample.tokens.clone()
    tokens[..., -1] = tokens[..., -1].clamp(-Y_MAX, Y_MAX)
    return replace(sample, tokens=tokens)


def exact(prompts: Prompts, lam: float) -> Float[Tensor, "prompt query"]:
    """Kernel ridge regression."""
    return posterior(GaussianProcess().kernel, lam, prompts.A, prompts.C, prompts.B).mean[..., 0]


def largest_errors(n: int, lam: float, sizes: Sizes, settings: Settings) -> Float[Tensor, "step prompt"]:
    """|f_k − f|, the largest over the queries of each prompt, of the iteration with exact products."""
    prompts, kernel = drawn(n, lam, sizes.prompts, settings), GaussianProcess().kernel
    alpha = iterate(ITERATION, kernel_system(kernel, lam, prompts.A, prompts.C), MOST_STEPS)
    found = (kernel(prompts.B, prompts.A) @ alpha)[..., 0]
    return (found - exact(prompts, lam)).abs().amax(-1)


@torch.no_grad()
def network_errors(n: int, lam: float, m: int, sizes: Sizes, settings: Settings) -> Float[Tensor, "group"]:
    """The largest error of the network against KRR in groups of prompts, with more steps than it takes."""
    prompts = drawn(n, lam, sizes.networks, settings)
    steps = int(12 * (1 + n / lam / 2))
    built = richardson(PromptShape(1, n_query=4, n=n), lam, GaussianProcess().lengthscale, steps, m, Y_MAX)
    found = built.model.to(settings.device).predict(built.tokens(prompts))[..., 0]
    return (found - exact(prompts, lam)).abs().amax(-1).reshape(GROUPS, -1).amax(-1)


def _straightness(errors: Float[Tensor, "step prompt"], note: str) -> Measurement:
    """R² of the steps against log 1/ε, ε the largest error over prompts, prompts resampled."""
    steps = torch.arange(len(errors), dtype=torch.float64)

    def squared_correlation(prompts: Tensor) -> Tensor:
        largest = errors.cpu()[:, prompts].amax(-1)
        inside = ((largest <= 0.1) & (largest >= 1e-8)).double()
        k, e = (steps[:, None] if largest.ndim > 1 else steps), largest.clamp(min=1e-300).log()
        mean_k, mean_e = ((value * inside).sum(0) / inside.sum(0) for value in (k * torch.ones_like(e), e))
        dk, de = (k - mean_k) * inside, (e - mean_e) * inside
        return (dk * de).sum(0).square() / (dk.square().sum(0) * de.square().sum(0))

    return bootstrap(squared_correlation, torch.arange(errors.shape[1]), note)


def _growth(by: dict[int, Tensor], sizes: Sizes, note: str, eps: float = 1e-3) -> Measurement:
    """Steps to ε at the larger N over those at the smaller, prompts resampled."""
    few, many = (by[n].cpu() for n in sizes.ends)

    def ratio(prompts: Tensor) -> Tensor:
        fewest, most = ((errors[:, prompts].amax(-1) > eps).sum(0).double() for errors in (few, many))
        return most / fewest

    return bootstrap(
        ratio, torch.arange(few.shape[1]), f"N = {sizes.ends[1]} over {sizes.ends[0]}, ε = {eps:g}. {note}"
    )


def _fixed_width(sizes: Sizes, note: str) -> str:
    return (
        f"half of the exponent of the largest error in N at m = {sizes.most_segments}, as the error is ∝ m⁻²; λ = 1.6, "
        f"N = {sizes.points}, {sizes.networks} prompts. The network is sized for every prompt, and answers can reach "
        f"y_max √(N/λ): a range that costs more than the √N of the paper, ¾ in the law it is sized by; {note}"
    )


def _halved(found: Measurement) -> Measurement:
    return Measurement(found.value / 2, (found.interval[0] / 2, found.interval[1] / 2), found.note)


def _blocks() -> Measurement:
    """From two built networks that differ by ten steps."""
    few, many = (richardson(PromptShape(1, n=4), 0.4, 0.3, steps, 2, 1.0).model.cfg.n_layers for steps in (2, 12))
    text = (
        "attention gives P⁻¹Kα and the MLP of the same block does the step; one more block reads in and one reads out"
    )
    return Measurement.exact((many - few) / 10, text)


def _table(details: dict[str, dict[str, list[float]]]) -> str:
    lines = ["largest error against KRR after steps of the iteration, exact products", f"{'steps':>20}"]
    shown = (1, 4, 8, 16, 24, 48, 96)
    lines[1] += "".join(f"{k:>10}" for k in shown)
    for name, errors in details["largest_error"].items():
        lines.append(f"{name:>20}" + "".join(f"{errors[k]:>10.1e}" if k < len(errors) else "" for k in shown))
    for name, title in (("by_segments", "segments m"), ("by_points", "points N")):
        cells = "".join(f"  {key}: {value:.2e}" for key, value in details[name].items())
        lines.append(f"largest error of the network by {title}:{cells}")
    return "\n".join(lines)


def _draw(curves: dict[str, list[float]], path: Path) -> None:
    drawn_curves = {name: (range(len(errors)), [max(e, 1e-17) for e in errors]) for name, errors in curves.items()}
    draw_curves(
        drawn_curves,
        path,
        title="Preconditioned Richardson iteration",
        x="steps, one a block",
        y="largest error against kernel ridge regression",
    )
