"""EAGLE needs fewer iterations than conjugate gradients and gradient descent whatever the distribution of the data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.plots import draw_curves
from analyses.claims.rivals import PRODUCTS, descent_counts
from analyses.claims.systems import consistent, error_curve, first_below
from interp.solvers import EAGLE, ConjugateGradient
from models.prompts import LogUniformSpectrum
from models.prompts.random import gaussian

TOLERANCE = 1e-6
EAGLE_STEPS = 80
KAPPA = 100.0
FREEDOM, CORRELATION, DENSITY, CLUSTERS, SPREAD = 4, 0.8, 0.1, 5, 0.1

Shape = tuple[int, int, int]


def student(shape: Shape, generator: torch.Generator) -> Float[Tensor, "prompt n d"]:
    """Student's t: a normal over the root of a mean of `FREEDOM` squared normals."""
    squares = gaussian((*shape, FREEDOM), generator).square().mean(-1)
    return gaussian(shape, generator) / squares.sqrt()


def autoregressive(shape: Shape, generator: torch.Generator) -> Float[Tensor, "prompt n d"]:
    """Rows are stationary AR(1) series: neighbouring columns correlate by `CORRELATION`."""
    noise = gaussian(shape, generator)
    columns = [noise[..., 0]]
    for column in range(1, shape[2]):
        columns.append(CORRELATION * columns[-1] + (1 - CORRELATION**2) ** 0.5 * noise[..., column])
    return torch.stack(columns, -1)


def sparse(shape: Shape, generator: torch.Generator) -> Float[Tensor, "prompt n d"]:
    """Signs, each entry present with probability `DENSITY`."""
    present = torch.rand(shape, generator=generator, dtype=torch.float64) < DENSITY
    return present * gaussian(shape, generator).sign()


def clustered(shape: Shape, generator: torch.Generator) -> Float[Tensor, "prompt n d"]:
    """Rows around `CLUSTERS` normal centres, with a spread of `SPREAD` of the centres' size."""
    prompts, n, d = shape
    centres = gaussian((prompts, CLUSTERS, d), generator)
    return centres[:, torch.arange(n) % CLUSTERS] + SPREAD * gaussian(shape, generator)


def spread(shape: Shape, generator: torch.Generator) -> Float[Tensor, "prompt n d"]:
    """Log-uniform singular values, κ = `KAPPA`, between Haar frames."""
    prompts, n, d = shape
    tokens, _ = LogUniformSpectrum(n=n, d=d, kappa=KAPPA).draw(prompts, generator)
    return tokens[:, :n, :d]


DISTRIBUTIONS: Mapping[str, Callable[[Shape, torch.Generator], Tensor]] = {
    "Gaussian": gaussian,
    "log-uniform SVD": spread,
    "Student-t, 4": student,
    "AR(1), .8": autoregressive,
    "sparse signs, .1": sparse,
    "5 clusters": clustered,
}


@dataclass(frozen=True)
class Counts:
    """Medians over prompts: κ(A), and iterations of each method; inf for conjugate gradients that do not arrive."""

    kappa: float
    eagle: float
    cg: float
    gd: float

    @property
    def wins(self) -> bool:
        return self.eagle < min(self.cg, self.gd)


def measure(settings: Settings) -> Findings:
    prompts, cg_steps = (16, 50_000) if settings.full else (4, 3_000)
    return measure_at(240, prompts, cg_steps, settings)


def measure_at(d: int, prompts: int, cg_steps: int, settings: Settings) -> Findings:
    square = {name: count(name, (prompts, d, d), cg_steps, settings) for name in DISTRIBUTIONS}
    tall = {name: count(name, (prompts, 2 * d, d), cg_steps, settings) for name in DISTRIBUTIONS}
    note = (
        f"Of medians over {prompts} prompts, n = d = {d}, seed {settings.seed}; at n = 2d it is "
        f"{sum(found.wins for found in tall.values())} of {len(tall)}. Iterations only: one of EAGLE multiplies "
        f"matrices, as much as {PRODUCTS}d = {PRODUCTS * d} of conjugate gradients, so counted these are cheaper on "
        f"{_cheaper(square, d)} of {len(square)} at n = d and on {_cheaper(tall, d)} at n = 2d."
    )
    wins = sum(found.wins for found in square.values())
    return Findings(
        {"wins": Measurement.exact(wins, note)},
        "\n\n".join([_table(f"n = d = {d}", square, cg_steps), _table(f"n = {2 * d}, d = {d}", tall, cg_steps)]),
        {"n = d": {k: vars(v) for k, v in square.items()}, "n = 2d": {k: vars(v) for k, v in tall.items()}},
        partial(_draw, square),
    )


def count(name: str, shape: Shape, cg_steps: int, settings: Settings) -> Counts:
    """Iterations on consistent systems with A drawn from a distribution."""
    A = DISTRIBUTIONS[name](shape, torch.Generator().manual_seed(settings.seed)).to(settings.device)
    system = consistent(A, settings.seed)
    values = torch.linalg.svdvals(A)
    counts = {
        method: first_below(error_curve(solver, system, steps, until=TOLERANCE), TOLERANCE).double()
        for method, solver, steps in (("eagle", EAGLE(), EAGLE_STEPS), ("cg", ConjugateGradient(), cg_steps))
    }
    cg = torch.where(counts["cg"] <= cg_steps, counts["cg"], torch.inf)
    kappa = values[:, 0] / values[:, -1]
    return Counts(*(_middle(v) for v in (kappa, counts["eagle"], cg, descent_counts(system, TOLERANCE))))


def _middle(values: Float[Tensor, " prompt"]) -> float:
    """The upper median, which is one of the values."""
    return float(values.sort().values[len(values) // 2])


def _cheaper(found: Mapping[str, Counts], d: int) -> int:
    return sum(counts.cg < PRODUCTS * d * counts.eagle for counts in found.values())


def _table(title: str, found: Mapping[str, Counts], cg_steps: int) -> str:
    lines = [f"{title:<20}{'κ(A)':>10}{'EAGLE':>8}{'CG':>10}{'GD':>12}   iterations to 1e-6"]
    for name, counts in found.items():
        cg = f"> {cg_steps}" if math.isinf(counts.cg) else f"{counts.cg:.0f}"
        lines.append(f"{name:<20}{counts.kappa:>10.3g}{counts.eagle:>8.0f}{cg:>10}{counts.gd:>12.3g}")
    return "\n".join(lines)


def _draw(found: Mapping[str, Counts], path: Path) -> None:
    """The distributions in order of κ; conjugate gradients that do not arrive are left out."""
    order = sorted(found.values(), key=lambda counts: counts.kappa)
    curves = {
        label: zip(*[(c.kappa, getattr(c, name)) for c in order if math.isfinite(getattr(c, name))], strict=True)
        for label, name in (("EAGLE", "eagle"), ("conjugate gradients", "cg"), ("gradient descent", "gd"))
    }
    drawn = {label: (list(x), list(y)) for label, (x, y) in curves.items()}
    title = "Iterations to 1e-6 on six distributions of square A, by their κ"
    draw_curves(drawn, path, title=title, x="κ(A), median over prompts", y="iterations, median", log_x=True)
