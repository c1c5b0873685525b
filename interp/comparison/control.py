"""The positive control: a network whose solver is known, with prompts of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp.comparison.candidates import PRECONDITIONED_RICHARDSON
from interp.comparison.judge import Judged, Rules, judge
from interp.comparison.measure import Measured, measure
from interp.comparison.problems import Draws, check_lam
from interp.comparison.readouts import Read
from interp.covariance import Covariance
from interp.solvers import Solver


@dataclass(frozen=True)
class Control:
    """A network that is known to run a solver, one step a block.

    Args:
        name: what it is called.        model: any hooked model, in float64.
        draws: its prompts in groups.   covariance, lam: the kernel system that it solves.
        truth: the name of its solver.  read: its own read-out, as in `compare`.
    """

    name: str
    model: Any
    draws: Draws
    covariance: Covariance
    lam: float
    truth: str = PRECONDITIONED_RICHARDSON
    read: Read | None = None

    def __post_init__(self) -> None:
        check_lam(self.lam)


@dataclass(frozen=True, eq=False)
class Controlled:
    """What the comparison says of a control: by read-out what was measured, and the judgement of every metric."""

    name: str
    truth: str | None
    measured: Mapping[str, Measured]
    judged: Mapping[str, Mapping[str, Judged]]

    def behaves(self, readout: str, metric: str) -> bool:
        """Is its solver named, alone or with ties; where it has none, is nothing named."""
        names = self.named(readout, metric)
        return not names if self.truth is None else self.truth in names

    def named(self, readout: str, metric: str) -> tuple[str, ...]:
        """What the metric names; nothing on a read-out that was not taken."""
        return self.judged[readout][metric].names if readout in self.judged else ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "truth": self.truth,
            "readouts": {
                name: {metric: each.to_dict() for metric, each in found.items()} for name, found in self.judged.items()
            },
        }


def run_control(control: Control, solvers: Mapping[str, Solver], steps: int, rules: Rules) -> Controlled:
    """Measure and judge it; no random network stands beside it."""
    found = measure(control.model, control.draws, control.covariance, control.lam, solvers, steps, control.read)
    judged = {name: judge(each, None, rules) for name, each in found.items()}
    return Controlled(control.name, control.truth, found, judged)
