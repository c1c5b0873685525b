"""EAGLE's iterations on several machines grow like 1/α, α the diversity index, whatever the number of machines."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Settings
from analyses.claims.fits import exponent, median
from analyses.claims.machines import diverse_system, diversity
from analyses.claims.plots import draw_curves
from analyses.claims.systems import error_curve, first_below
from interp.solvers import THEORY, DistributedEAGLE, DistributedEstimation, Solver

ALPHAS = (1.0, 0.83, 0.35, 0.01)
MACHINES = 6  # 5/6 is the largest α below 1
COUNTS = (1, 3, 5, 8)
SAME_ALPHAS = (1.0, 0.35)
KAPPA = 100.0
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Sizes:
    """Columns, prompts a setting, and the most iterations."""

    d: int = 12
    prompts: int = 6
    steps: int = 3000


FULL = Sizes(d=48, prompts=16, steps=6000)
Curves = Mapping[float, Float[Tensor, "step prompt"]]


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), settings)


def measure_at(sizes: Sizes, settings: Settings) -> Findings:
    rules = {name: _by_alpha(rule, sizes, settings) for name, rule in _rules().items()}
    curves = rules["estimation (1/3, 1)"]
    counts = torch.stack([first_below(curves[alpha], TOLERANCE).double() for alpha in ALPHAS])
    machines = {alpha: _by_machines(alpha, sizes, settings) for alpha in SAME_ALPHAS}
    spread = machines[1.0].amax(0) / machines[1.0].amin(0)
    where = f"d = {sizes.d}, κ = {KAPPA:g} on each machine, {sizes.prompts} prompts, seed {settings.seed}"
    return Findings(
        {
            "alpha": exponent([1 / alpha for alpha in ALPHAS], counts, _alpha_note(rules, where), settings.seed),
            "machines": median(spread, _machines_note(machines, where), settings.seed),
        },
        _table(rules, machines),
        {
            "sizes": asdict(sizes),
            "diversity": [_diversity(alpha, sizes, settings) for alpha in ALPHAS],
            "alpha": {name: {f"{a:g}": _steps(c).tolist() for a, c in of.items()} for name, of in rules.items()},
            "machines": {f"{alpha:g}": counts.tolist() for alpha, counts in machines.items()},
        },
        partial(_draw, curves),
    )


def _rules() -> dict[str, Solver]:
    """The estimation form, the block form with two roles, and the block form with one pair for all rows."""
    return {
        "estimation (1/3, 1)": DistributedEstimation(MACHINES),
        "blocks, two roles": DistributedEAGLE(MACHINES, -1 / 3, 1 / 3, query=(-1.0, 1.0)),
        "blocks, T₃": DistributedEAGLE(MACHINES),
        "blocks (1/3, 1)": DistributedEAGLE(MACHINES, *THEORY),
    }


def _by_alpha(rule: Solver, sizes: Sizes, settings: Settings) -> Curves:
    """Errors at each α."""
    curves = {}
    for alpha in ALPHAS:
        system = diverse_system(alpha, MACHINES, sizes.d, KAPPA, sizes.prompts, settings.seed, settings.device)
        curves[alpha] = error_curve(rule, system, sizes.steps, until=TOLERANCE)
    return curves


def _diversity(alpha: float, sizes: Sizes, settings: Settings) -> list[float]:
    """The index of the prompts, measured."""
    system = diverse_system(alpha, MACHINES, sizes.d, KAPPA, sizes.prompts, settings.seed)
    return diversity(system.problem.A, MACHINES).tolist()


def _by_machines(alpha: float, sizes: Sizes, settings: Settings) -> Float[Tensor, "count prompt"]:
    """Iterations for each number of machines that α allows."""
    counts = []
    for machines in COUNTS:
        if alpha == 1 or alpha <= 1 - 1 / machines:
            system = diverse_system(alpha, machines, sizes.d, KAPPA, sizes.prompts, settings.seed, settings.device)
            counts.append(_steps(error_curve(DistributedEstimation(machines), system, sizes.steps, until=TOLERANCE)))
    return torch.stack(counts)


def _steps(errors: Float[Tensor, "step prompt"]) -> Float[Tensor, "prompt"]:
    return first_below(errors, TOLERANCE).double()


def _alpha_note(rules: Mapping[str, Curves], where: str) -> str:
    floor = float(rules["blocks (1/3, 1)"][1.0][-1].median())
    return (
        f"Slope of log iterations to {TOLERANCE:g} over log 1/α; M = {MACHINES}, {where}. Each machine conditions its "
        "own rows and the mean of their preconditioned gradients moves w, with theory's constants. The block form "
        "takes as many iterations, but needs other constants by role: context (1/3, 1/3), queries (1, 1). With "
        f"(1/3, 1) for all rows it stalls at {floor:.1g}, even at α = 1: a machine's labels are used up before the "
        "mean has answered."
    )


def _machines_note(machines: Mapping[float, Float[Tensor, "count prompt"]], where: str) -> str:
    others = machines[SAME_ALPHAS[1]]
    spread = float((others.amax(0) / others.amin(0)).quantile(0.5))
    return (
        "Median over prompts of most over fewest iterations, α = 1, the only index that one machine can have; "
        f"{where}. At α = {SAME_ALPHAS[1]:g} the ratio over M = {', '.join(map(str, COUNTS[1:]))} is {spread:.2f}."
    )


def _table(rules: Mapping[str, Curves], machines: Mapping[float, Float[Tensor, "count prompt"]]) -> str:
    """Median iterations by α and rule, and by α and number of machines."""
    lines = [f"iterations to {TOLERANCE:g}, median over prompts, M = {MACHINES}", "α       " + _cells(rules)]
    lines += [f"{alpha:<8g}" + _cells([_cell(curves[alpha]) for curves in rules.values()]) for alpha in ALPHAS]
    lines += ["", "estimation (1/3, 1) by number of machines", "α       " + _cells([f"M = {m}" for m in COUNTS])]
    for alpha, counts in machines.items():
        cells = [f"{float(values.quantile(0.5)):g}" for values in counts]
        lines.append(f"{alpha:<8g}" + _cells(["–"] * (len(COUNTS) - len(cells)) + cells))
    return "\n".join(lines)


def _cells(texts: Mapping[str, object] | list[str]) -> str:
    return "".join(f"{text:>22}" for text in texts)


def _cell(errors: Float[Tensor, "step prompt"]) -> str:
    count = float(_steps(errors).quantile(0.5))
    return f"{count:g}" if count < len(errors) else f"> {len(errors) - 1}, at {float(errors[-1].median()):.0e}"


def _draw(curves: Curves, path: Path) -> None:
    drawn = {}
    for alpha, errors in curves.items():
        middle = errors.quantile(0.5, 1).tolist()
        drawn[f"α = {alpha:g}"] = (range(1, len(middle) + 1), middle)
    title = f"EAGLE (1/3, 1) on {MACHINES} machines, κ = {KAPPA:g} on each"
    draw_curves(drawn, path, title=title, x="iterations + 1", y="relative error of w, median", log_x=True)
