"""Ablation: what came of a set of interventions on the same prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interp.ablation.effects import MOVED, Effect
from interp.ablation.intervention import Intervention

TITLES = {
    "kernel": "kernel swaps",
    "head": "heads",
    "mlp": "MLPs",
    "layer": "whole layers",
    "exit": "early exit",
    "word": "words",
}


@dataclass(frozen=True)
class Row:
    """One intervention and its effects, by metric."""

    intervention: Intervention
    effects: Mapping[str, Effect]

    def to_dict(self) -> dict[str, Any]:
        effects = {name: effect.to_dict() for name, effect in self.effects.items()}
        return {**self.intervention.to_dict(), "effects": effects}


@dataclass(frozen=True)
class Ablation:
    """Effects of interventions beside the clean model.

    Args:
        clean: by metric, the clean model's mean over prompts.
        rows: in the order in which they were measured.
        prompts: how many.
        prefix_reused: did interventions go on from the clean stream before their first layer.
    """

    clean: Mapping[str, float]
    rows: tuple[Row, ...]
    prompts: int
    prefix_reused: bool

    def of(self, kind: str, what: str | None = None) -> list[Row]:
        """The rows of a kind, and of one kernel or mode."""
        return [row for row in self.rows if row.intervention.kind == kind and what in (None, row.intervention.what)]

    def __str__(self) -> str:
        clean = ", ".join(f"{name} {value:.4g}" for name, value in self.clean.items() if name != MOVED)
        lines = [f"clean model, {self.prompts} prompts" + (f": {clean}" if clean else "")]
        for kind, title in TITLES.items():
            if rows := self.of(kind):
                lines += ["", title, *_table(rows, list(self.clean))]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "prefix_reused": self.prefix_reused,
            "clean": dict(self.clean),
            "rows": [row.to_dict() for row in self.rows],
        }


def _table(rows: Sequence[Row], metrics: Sequence[str]) -> list[str]:
    """A line an intervention; for each metric its value and the 95 % interval of its change from the clean value."""
    head = ["what", "where", *(f"{name} (change, 95 %)" if name != MOVED else "moved" for name in metrics)]
    cells = [head, *(_line(row, metrics) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _line(row: Row, metrics: Sequence[str]) -> list[str]:
    item = row.intervention
    what = item.what + (f" ({item.note})" if item.note else "")
    return [what, item.label, *(_cell(row.effects[name]) for name in metrics)]


def _cell(effect: Effect) -> str:
    if effect.metric == MOVED:
        return f"{effect.value:.3g}"
    low, high = effect.interval
    return f"{effect.value:.4g} ({effect.change:+.2g} [{low:+.2g}, {high:+.2g}])"
