"""What interventions do to the distances between a model's layers and the solvers of its kernel system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from analyses.compare_model import sampler
from analyses.subject import Subject
from interp.ablation import Intervention
from interp.comparison import CANDIDATES, TO_KRR, Draws, Margin, measure
from interp.comparison.metrics import A
from models.prompts import GaussianProcess

GROUPS, TRAIN, TEST, STEPS = 10, 96, 32, 64
UNFIT = ("exit", "resample")
"""What is left out: an exit has no later layers, and donors of resampling belong to the prompts they were drawn for."""

Distances = Mapping[str, Float[Tensor, "group"]]


@dataclass(frozen=True)
class AlignedRow:
    """One intervention: by solver, the distance A of its layers, and the change from the clean model over groups."""

    what: str
    where: str
    value: Mapping[str, float]
    change: Mapping[str, Margin]

    def to_dict(self) -> dict[str, Any]:
        changes = {
            name: {"mean": by.mean, "interval": list(by.interval), "distance": self.value[name]}
            for name, by in self.change.items()
        }
        return {"what": self.what, "where": self.where, "change_of_A": changes}


@dataclass(frozen=True)
class Alignment:
    """Distances A (`interp.comparison.metrics`) by probes to KRR, fitted anew after each intervention."""

    clean: Mapping[str, float]
    rows: tuple[AlignedRow, ...]

    def __str__(self) -> str:
        head = (
            f"distance A of layers from each solver, {GROUPS} groups of {TEST} prompts (change; * interval without 0)"
        )
        names = list(self.clean)
        widths = [max(len(name), 16) for name in names]
        labels = ["", "clean", *(f"{row.what}, {row.where}" for row in self.rows)]
        cells = [names, [f"{value:.3f}" for value in self.clean.values()], *(self._cells(row) for row in self.rows)]
        first = max(map(len, labels))
        lines = [
            f"{label:<{first}}  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            for label, line in zip(labels, cells, strict=True)
        ]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    @staticmethod
    def _cells(row: AlignedRow) -> list[str]:
        sure = {name: not by.interval[0] <= 0 <= by.interval[1] for name, by in row.change.items()}
        return [f"{row.value[name]:.3f} ({by.mean:+.3f}{'*' * sure[name]})" for name, by in row.change.items()]

    def to_dict(self) -> dict[str, Any]:
        return {"clean_A": dict(self.clean), "rows": [row.to_dict() for row in self.rows]}


def alignment(
    subject: Subject, model: Any, family: GaussianProcess, interventions: Sequence[Intervention], seed: int
) -> Alignment:
    """The clean model and each intervention against every solver, on the same groups of prompts."""
    draws = Draws(sampler(subject, family, seed), TRAIN, TEST, GROUPS)
    clean = _distances(model, draws, family, [])
    rows = []
    for item in interventions:
        if item.kind in UNFIT or item.what in UNFIT:
            continue
        found = _distances(model, draws, family, item.hooks())
        change = {name: Margin.of(found[name] - clean[name]) for name in clean}
        what = item.what + (f" ({item.note})" if item.note else "")
        rows.append(AlignedRow(what, item.label, _means(found), change))
    return Alignment(_means(clean), tuple(rows))


def _distances(model: Any, draws: Draws, family: GaussianProcess, hooks: list[Any]) -> Distances:
    with model.hooks(fwd_hooks=hooks):
        found = measure(model, draws, family.kernel, family.lam, CANDIDATES, STEPS)
    return found[TO_KRR].values(A)


def _means(found: Distances) -> dict[str, float]:
    return {name: values.mean().item() for name, values in found.items()}
