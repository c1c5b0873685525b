"""Shallow models run a first-order method, deep ones the second-order rule."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.plots import draw_curves
from interp import identify
from interp.solvers import ChebyshevSemiIteration, GradientDescent, LeastSquares, iterate
from models import zoo
from models.evaluation import pooled_relative_error, predictions
from models.prompts import Prompts

MODELS = {1: "eagle-depth1", 2: "eagle-depth2", 3: "eagle-depth3", 4: "eagle-d10", 5: "eagle-deep"}
PROMPTS = 256
SOLVERS = {"gradient descent, best fixed step": GradientDescent(), "Chebyshev semi-iteration": ChebyshevSemiIteration()}


@dataclass(frozen=True)
class Seed:
    """One trained model: what it is named, and its pooled relative error on the prompts."""

    depth: int
    seed: int
    families: tuple[str, ...]
    nearest: str
    problem: str | None
    error: float

    @property
    def as_expected(self) -> bool:
        """One layer: gradient descent is among the names. More: every name is of EAGLE's kin."""
        if self.depth == 1:
            return "gradient descent" in self.families
        return bool(self.families) and all("EAGLE" in name or name == "GD++" for name in self.families)


def measure(settings: Settings, prompts: int = PROMPTS) -> Findings:
    sample = zoo.prompts(MODELS[1], prompts, seed=settings.seed)
    seeds = [entry for depth in MODELS for entry in _seeds(depth, sample)]
    best = {depth: min(entry.error for entry in seeds if entry.depth == depth) for depth in MODELS}
    solvers = {name: _solver_errors(solver, sample) for name, solver in SOLVERS.items()}
    measurements = {"families": _families(seeds), "order": _order(best)}
    details = {"seeds": [asdict(entry) for entry in seeds], "best": best, "solvers": solvers}
    return Findings(measurements, _table(seeds, solvers), details, partial(_draw, best, solvers))


def _seeds(depth: int, sample: Prompts) -> list[Seed]:
    found = []
    for number, model in zoo.seeds(MODELS[depth]).items():
        error = pooled_relative_error(predictions(model, sample), sample.target)
        answer = identify(model, sample)
        found.append(Seed(depth, number, answer.families, answer.ranking[0].family, answer.ranking[0].problem, error))
    return found


def _solver_errors(solver: GradientDescent | ChebyshevSemiIteration, sample: Prompts) -> dict[int, float]:
    """The error of a first-order solver that knows each prompt's spectrum, after as many steps."""
    weights = iterate(solver, LeastSquares(sample.A, sample.C), max(MODELS))
    return {depth: pooled_relative_error(sample.B @ weights[depth], sample.target) for depth in MODELS}


def _families(seeds: Sequence[Seed]) -> Measurement:
    by_depth = {depth: [entry.as_expected for entry in seeds if entry.depth == depth] for depth in MODELS}
    named = {depth: 2 * sum(expected) > len(expected) for depth, expected in by_depth.items()}
    counts = ", ".join(f"L = {depth}: {sum(expected)} of {len(expected)}" for depth, expected in by_depth.items())
    short = [f"L = {s.depth}: nearest {s.nearest}, but {s.problem}" for s in seeds if not s.families and s.seed == 0]
    why = f"; seed 0 at {'; '.join(short)}" if short else ""
    return Measurement.exact(sum(named.values()), f"seeds named as expected, {counts}, most of them decide{why}")


def _order(best: Mapping[int, float]) -> Measurement:
    third, fourth, fifth = (best[depth] for depth in (3, 4, 5))
    return Measurement.exact(
        fifth / (fourth**2 / third),
        f"best seed of each depth, relative errors at L = 3, 4, 5: {third:.3g}, {fourth:.3g}, {fifth:.3g}",
    )


def _table(seeds: Sequence[Seed], solvers: Mapping[str, Mapping[int, float]]) -> str:
    lines = [f"{'layers':>6}  {'seed':>4}  {'error':>9}  named"]
    for s in seeds:
        named = ", ".join(s.families) or f"unknown, nearest {s.nearest}, but {s.problem}"
        lines.append(f"{s.depth:>6}  {s.seed:>4}  {s.error:>9.3g}  {named}")
    lines += ["errors of first-order solvers that know the spectrum, after as many steps"]
    lines += [f"  {name}: {', '.join(f'{error:.3g}' for error in errors.values())}" for name, errors in solvers.items()]
    return "\n".join(lines)


def _draw(best: Mapping[int, float], solvers: Mapping[str, Mapping[int, float]], path: Path) -> None:
    curves = {name: (list(errors), list(errors.values())) for name, errors in {"best model": best, **solvers}.items()}
    draw_curves(
        curves,
        path,
        title="Error by depth, κ = 10",
        x="layers, or steps of a solver",
        y="relative error of the prediction",
    )
