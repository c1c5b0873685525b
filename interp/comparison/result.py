"""Comparison: the result, as a value."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interp.comparison.control import Controlled
from interp.comparison.judge import NONE, Judged, Margin, Rules
from interp.comparison.measure import Measured


@dataclass(frozen=True, eq=False)
class Comparison:
    """Layers against solvers.

    Args:
        measured: by read-out, distances of every layer to every step, to KRR and to f, of every group of prompts.
        judged: by read-out and metric, nearest solver, margins, ties, and whether it is named.
        randoms: the random networks; built: the positive control, or None where it was not run.
        names: the solvers of the total verdict: none, one, or one and those tied with it.
        readout, metric: what the verdict rests on; no metric where nothing is named.
        notes: what weakens it.     groups, prompts: groups of prompts, and prompts in each.
    """

    measured: Mapping[str, Measured]
    judged: Mapping[str, Mapping[str, Judged]]
    randoms: tuple[Controlled, ...]
    built: Controlled | None
    names: tuple[str, ...]
    readout: str
    metric: str | None
    notes: tuple[str, ...]
    groups: int
    prompts: int
    lam: float
    rules: Rules

    @property
    def verdict(self) -> str:
        """The solver, "a = b" where they are tied, or "none"."""
        return " = ".join(self.names) or NONE

    @property
    def layers(self) -> int:
        return next(iter(self.measured.values())).layers

    def contrast(self, metric: str, first: str, second: str, readout: str | None = None) -> Margin:
        """How much nearer the layers are to one solver than to another (for C: its cosine minus the other's)."""
        values = self.measured[readout or self.readout].values(metric)
        for name in (first, second):
            if name not in values:
                raise ValueError(f"Comparison.contrast: no solver {name!r}; there are: {', '.join(values)}")
        return Margin.of(values[second] - values[first])

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "names": list(self.names),
            "rests_on": {"readout": self.readout, "metric": self.metric},
            "notes": list(self.notes),
            "groups": self.groups,
            "prompts_per_group": self.prompts,
            "lambda": self.lam,
            "rules": asdict(self.rules),
            "readouts": {name: self._readout(name) for name in self.measured},
            "controls": {
                "random": [each.to_dict() for each in self.randoms],
                "built": None if self.built is None else self.built.to_dict(),
            },
        }

    def _readout(self, name: str) -> dict[str, Any]:
        measured = self.measured[name]
        return {
            "distance_to_krr": measured.to_krr.mean(0).tolist(),
            "distance_to_target": measured.to_target.mean(0).tolist(),
            "krr_to_target": measured.krr_to_target.mean().item(),
            "metrics": {metric: each.to_dict() for metric, each in self.judged[name].items()},
            "layer_by_step": {solver: table.mean(0).tolist() for solver, table in measured.distance.items()},
        }

    def __str__(self) -> str:
        from interp.comparison.text import to_lines

        return "\n".join(to_lines(self))
