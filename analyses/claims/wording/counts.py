"""Their iteration counts: with all rows, on four machines, and with sketches of rank 10."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Settings
from analyses.claims.fits import median
from analyses.claims.systems import System, error_curve, first_below, log_uniform
from interp.solvers import EAGLE, T3, DistributedEAGLE, DistributedEstimation, SketchedEAGLE, Solver
from interp.solvers.seeds import mixed
from interp.solvers.sketched_eagle import frame

D, ROWS, MACHINES, RANK = 20, 20, 4, 10
STATED = 100.0
KAPPAS = (3.0, 10.0, 30.0, STATED)
T3_COLUMN = f"T₃, κ = {STATED:g}"
BELOW = 1e-6  # curves end here


@dataclass(frozen=True)
class Sizes:
    """Prompts, and the most iterations."""

    prompts: int = 16
    steps: int = 200


FULL = Sizes(prompts=128)


@dataclass(frozen=True)
class Text:
    """One of their statements.

    Args:
        error: that they name.
        said: in how many iterations.
        theory, t3: a solver for their setting with either constants, by seed.
        rows: of A.
    """

    error: float
    said: tuple[int, int]
    theory: Callable[[int], Solver]
    t3: Callable[[int], Solver]
    rows: int


TEXTS = {
    "full": Text(0.02, (5, 8), lambda seed: EAGLE(), lambda seed: EAGLE(*T3), ROWS),
    "distributed": Text(
        0.03,
        (8, 12),
        lambda seed: DistributedEstimation(MACHINES),
        lambda seed: DistributedEAGLE(MACHINES, *T3),
        MACHINES * ROWS,
    ),
    "rank-limited": Text(
        0.025,
        (6, 10),
        lambda seed: SketchedEAGLE(RANK, seed=seed),
        lambda seed: SketchedEAGLE(RANK, *T3, seed=seed),
        ROWS,
    ),
}
Counts = dict[str, Float[Tensor, "prompt"]]


def measure(sizes: Sizes, settings: Settings) -> Findings:
    curves = {name: _curves(text, sizes, settings) for name, text in TEXTS.items()}
    counts = {
        name: {setting: first_below(errors, TEXTS[name].error).double() for setting, errors in of.items()}
        for name, of in curves.items()
    }
    return Findings(
        {
            name: median(of[_theory(STATED)], _note(name, of, sizes, settings), settings.seed)
            for name, of in counts.items()
        },
        _table(counts),
        {
            "sizes": asdict(sizes),
            "counts": {name: {setting: c.tolist() for setting, c in of.items()} for name, of in counts.items()},
            "curves": {name: of[_theory(STATED)].quantile(0.5, 1).tolist() for name, of in curves.items()},
        },
    )


def _theory(kappa: float) -> str:
    return f"κ = {kappa:g}"


def _curves(text: Text, sizes: Sizes, settings: Settings) -> dict[str, Float[Tensor, "step prompt"]]:
    """Theory's constants at every κ, and T₃ at the stated one."""
    seed, steps = settings.seed, sizes.steps
    systems = {kappa: system_of(text, kappa, sizes.prompts, settings) for kappa in KAPPAS}
    curves = {
        _theory(kappa): error_curve(text.theory(seed), system, steps, until=BELOW) for kappa, system in systems.items()
    }
    return curves | {T3_COLUMN: error_curve(text.t3(seed), systems[STATED], steps, until=BELOW)}


def system_of(text: Text, kappa: float, prompts: int, settings: Settings) -> System:
    return log_uniform(kappa, (text.rows, D), prompts, settings.seed, device=settings.device)


def ideal_sketches(error: float, prompts: int, seed: int) -> float:
    """Median steps until random vectors are below the error, if every step finished all that lies in its frame."""
    left = torch.randn(prompts, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sizes, norms = left.norm(dim=1), [torch.ones(prompts, dtype=torch.float64)]
    while float(norms[-1].max()) > error:
        S = frame(D, RANK, mixed(seed, len(norms) - 1))
        left = left - left @ S @ S.T
        norms.append(left.norm(dim=1) / sizes)
    return _median(first_below(torch.stack(norms), error).double())


def _note(name: str, counts: Counts, sizes: Sizes, settings: Settings) -> str:
    text = TEXTS[name]
    low, high = text.said
    fitting = [kappa for kappa in KAPPAS if low <= _median(counts[_theory(kappa)]) <= high]
    holds = f"at κ = {', '.join(f'{kappa:g}' for kappa in fitting)}" if fitting else "at none"
    why = "They name no κ, and the count grows with log κ."
    if name == "rank-limited":
        ideal = ideal_sketches(text.error, 200, settings.seed)
        why = f"Steps that finished all that lies in their frame, and nothing else, would take {ideal:g}."
    return (
        f"{sizes.prompts} prompts, A {text.rows} × {D} with log-uniform singular values, seed {settings.seed}. Of "
        f"κ = {', '.join(f'{kappa:g}' for kappa in KAPPAS)} it holds {holds}; with T₃, the constants that training "
        f"finds, the count at κ = {STATED:g} is {_median(counts[T3_COLUMN]):g}. {why}"
    )


def _median(counts: Float[Tensor, "prompt"]) -> float:
    return float(counts.double().quantile(0.5))


def _table(counts: dict[str, Counts]) -> str:
    columns = next(iter(counts.values()))
    lines = ["iterations with theory's constants, and with T₃; median over prompts"]
    lines += [f"{'setting':<14}{'to':>7}{'said':>8}" + "".join(f"{column:>14}" for column in columns)]
    for name, of in counts.items():
        low, high = TEXTS[name].said
        cells = "".join(f"{_median(values):>14g}" for values in of.values())
        lines.append(f"{name:<14}{TEXTS[name].error:>7g}{f'{low}–{high}':>8}{cells}")
    return "\n".join(lines)
