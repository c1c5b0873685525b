"""EAGLE on several machines sends fewer floats than DANE and gradient averaging."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.distributed_rivals import Tuned, tuned_dane
from analyses.claims.fits import bootstrap
from analyses.claims.machines import diversity
from analyses.claims.plots import draw_curves
from analyses.claims.rivals import descent_counts, descent_errors
from analyses.claims.systems import System, error_curve, first_below, log_uniform
from interp.solvers import DistributedEstimation

MACHINES, D, OUT = 4, 20, 1
ROWS = (15, 20, 40, 200)  # of a machine
STATED = 40  # the rows of the criterion: twice as many as columns, so that every machine could solve by itself
KAPPA = 100.0
TOLERANCE = 1e-4
VECTORS = {"EAGLE": 2, "DANE": 4, "gradient averaging": 2}
"""Vectors of d·out floats between the centre and each machine a round: EAGLE and averaging send w down and a (locally
preconditioned) gradient up; DANE sends w down, the gradient up, the mean gradient down and the local solution up."""


@dataclass(frozen=True)
class Sizes:
    """Prompts, and the most rounds of EAGLE and of DANE."""

    prompts: int = 6
    rounds: int = 10_000


FULL = Sizes(prompts=32, rounds=100_000)


@dataclass(frozen=True, eq=False)
class Compared:
    """Rounds of each method to the tolerance, on machines of some number of rows."""

    system: System
    alpha: Float[Tensor, "prompt"]
    eagle: Float[Tensor, "round prompt"]
    dane: Tuned
    averaging: Float[Tensor, "prompt"]

    @property
    def rounds(self) -> dict[str, Float[Tensor, "prompt"]]:
        counted = (first_below(self.eagle, TOLERANCE), first_below(self.dane.errors, TOLERANCE), self.averaging)
        return {name: rounds.double() for name, rounds in zip(VECTORS, counted, strict=True)}

    @property
    def floats(self) -> dict[str, Float[Tensor, "prompt"]]:
        """Sent up and down, to and from all machines."""
        return {name: rounds * floats_a_round(name) for name, rounds in self.rounds.items()}

    def ratio(self, name: str) -> Float[Tensor, "prompt"]:
        return self.floats[name] / self.floats["EAGLE"]


def floats_a_round(name: str, machines: int = MACHINES, d: int = D, out: int = OUT) -> int:
    """What all machines together send and receive in one round."""
    return VECTORS[name] * machines * d * out


def floats_a_round_in_blocks(queries: int, machines: int = MACHINES, d: int = D, out: int = OUT) -> int:
    """The same for EAGLE's block form, which answers query rows: B down, B AᵀA and B AᵀC up."""
    return machines * queries * (2 * d + out)


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), settings)


def measure_at(sizes: Sizes, settings: Settings) -> Findings:
    compared = {rows: _compare(rows, sizes, settings) for rows in ROWS}
    return Findings(
        {
            "dane": _ratio(compared, "DANE", _dane_note(compared, sizes, settings), settings.seed),
            "averaging": _ratio(compared, "gradient averaging", _averaging_note(), settings.seed),
        },
        _table(compared, sizes),
        {"sizes": asdict(sizes)} | {str(rows): _details(of) for rows, of in compared.items()},
        partial(_draw, compared[STATED]),
    )


def _compare(rows: int, sizes: Sizes, settings: Settings) -> Compared:
    size = (MACHINES * rows, D)
    system = log_uniform(KAPPA, size, sizes.prompts, settings.seed, device=settings.device)
    return Compared(
        system,
        diversity(system.problem.A, MACHINES).cpu(),
        error_curve(DistributedEstimation(MACHINES), system, sizes.rounds, until=TOLERANCE),
        tuned_dane(system, MACHINES, TOLERANCE, sizes.rounds),
        descent_counts(system, TOLERANCE),
    )


def _ratio(compared: dict[int, Compared], name: str, note: str, seed: int) -> Measurement:
    ratios = compared[STATED].ratio(name)
    return bootstrap(lambda chosen: chosen.quantile(0.5, -1), ratios, note, seed)


def _dane_note(compared: dict[int, Compared], sizes: Sizes, settings: Settings) -> str:
    medians = {rows: float(of.ratio("DANE").quantile(0.5)) for rows, of in compared.items()}
    others = ", ".join(f"{medians[rows]:.2g} with {rows}" for rows in ROWS if rows != STATED)
    blocks = floats_a_round_in_blocks(1)
    return (
        f"Median over {sizes.prompts} prompts: M = {MACHINES}, d = {D}, {STATED} rows a machine, κ = {KAPPA:g}, seed "
        f"{settings.seed}. A round is {floats_a_round('EAGLE')} floats for EAGLE (w down, a preconditioned gradient "
        f"up; {blocks} for one query in the block form), {floats_a_round('DANE')} for DANE, its damping and step the "
        f"best for each prompt. It depends on the rows a machine has: {others}. With many rows the machines are alike, "
        "and DANE, which solves each exactly, is done in a few rounds; EAGLE still has to condition its rows."
    )


def _averaging_note() -> str:
    return (
        f"The same prompts; a round is {floats_a_round('gradient averaging')} floats, its step the best fixed one for "
        "each prompt, rounds by the closed form (1 − ηg)^k."
    )


def _table(compared: dict[int, Compared], sizes: Sizes) -> str:
    """Rounds, floats and DANE's best damping by rows a machine; medians over prompts."""
    lines = [
        f"to a relative error of {TOLERANCE:g}: rounds (floats), median over prompts, M = {MACHINES}, d = {D}",
        f"{'rows':<6}{'α':>9}" + "".join(f"{name:>24}" for name in VECTORS) + f"{'damping of DANE':>20}",
    ]
    for rows, of in compared.items():
        cells = []
        for name, rounds in of.rounds.items():
            middle, most = float(rounds.quantile(0.5)), "> " if float(rounds.max()) > sizes.rounds else ""
            bound = most if name != "gradient averaging" else ""
            cells.append(f"{bound}{middle:g} ({middle * floats_a_round(name):.3g})")
        damping = float(of.dane.setting.quantile(0.5))
        alpha = float(of.alpha.quantile(0.5))
        lines.append(f"{rows:<6}{alpha:>9.2g}" + "".join(f"{cell:>24}" for cell in cells) + f"{damping:>20.1g}")
    return "\n".join([*lines, _at_equal_floats(compared[STATED])])


def _at_equal_floats(of: Compared) -> str:
    """Errors when each method has sent what EAGLE sends to reach the tolerance."""
    floats = float(of.floats["EAGLE"].quantile(0.5))
    rounds = {name: int(floats / floats_a_round(name)) for name in VECTORS}
    errors = {
        "EAGLE": of.eagle[min(rounds["EAGLE"], len(of.eagle) - 1)],
        "DANE": of.dane.errors[min(rounds["DANE"], len(of.dane.errors) - 1)],
        "gradient averaging": descent_errors(of.system, torch.tensor([rounds["gradient averaging"]]))[0],
    }
    cells = ", ".join(f"{name} {float(values.quantile(0.5)):.1e}" for name, values in errors.items())
    return f"error after {floats:.4g} floats, {STATED} rows a machine: {cells}"


def _details(of: Compared) -> dict[str, object]:
    rounds = {name: values.tolist() for name, values in of.rounds.items()}
    return {"rounds": rounds, "diversity": of.alpha.tolist(), "damping": of.dane.setting.tolist()}


def _draw(of: Compared, path: Path) -> None:
    rounds = torch.logspace(0, 5, 60).round().unique()
    errors = {
        "EAGLE": (torch.arange(1, len(of.eagle)), of.eagle[1:]),
        "DANE": (torch.arange(1, len(of.dane.errors)), of.dane.errors[1:]),
        "gradient averaging": (rounds, descent_errors(of.system, rounds)),
    }
    curves = {}
    for name, (count, values) in errors.items():
        middle = values.quantile(0.5, 1)
        kept = torch.cat([torch.ones(1, dtype=torch.bool), middle[:-1] > TOLERANCE])
        curves[name] = ((count * floats_a_round(name))[kept].tolist(), middle[kept].tolist())
    title = f"M = {MACHINES}, d = {D}, {STATED} rows a machine, κ = {KAPPA:g}"
    y = "relative error of w, median"
    draw_curves(curves, path, title=title, x="floats sent", y=y, log_x=True, marks={"1e-4": TOLERANCE})
