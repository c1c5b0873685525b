"""The answer of a probe, layer by layer, with its controls beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interp.probes.scores import Score


@dataclass(frozen=True)
class LayerScore:
    """Held-out R² at one hook, and the controls of the same probe.

    Args:
        hook, depth: where; depth counts blocks that have acted, None for hooks inside a block.
        score: of the model.            shuffled: with targets of other prompts, in training and held out.
        untrained: the same architecture with random weights, one draw.
        prompt_only: the prompt without the model, by its entries or its second moments, whichever tells more.
        alpha: the chosen penalty, None for other estimators.
        positions: learned weights of the rows, for the reading "weighted".
        converged: False where the estimator stopped at its iteration limit.
        prompt_features: which of the two `prompt_only` is.
    """

    hook: str
    depth: int | None
    score: Score
    shuffled: Score
    untrained: Score
    prompt_only: Score
    alpha: float | None = None
    positions: tuple[float, ...] | None = None
    converged: bool = True
    prompt_features: str = ""

    @property
    def above_controls(self) -> bool:
        """Does the score's interval lie above those of all three controls?"""
        controls = (self.shuffled, self.untrained, self.prompt_only)
        return self.score.interval[0] > max(control.interval[1] for control in controls)

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"hook": self.hook, "depth": self.depth, "score": self.score.value}
        values["interval"] = list(self.score.interval)
        for name in ("shuffled", "untrained", "prompt_only"):
            control: Score = getattr(self, name)
            values |= {name: control.value, f"{name}_interval": list(control.interval)}
        values |= {"above_controls": self.above_controls, "alpha": self.alpha, "converged": self.converged}
        values["prompt_features"] = self.prompt_features
        return values | ({"positions": list(self.positions)} if self.positions is not None else {})


@dataclass(frozen=True)
class ProbeReport:
    """What a probe reads at each hook.

    Args:
        target, meaning: what is looked for.        reading: from which features.
        estimator: ridge or mlp.                    layers: one entry a hook.
        train, held_out: prompts.                   columns: width of the target.
        notes: what a reader should know.
    """

    target: str
    meaning: str
    reading: str
    estimator: str
    layers: tuple[LayerScore, ...]
    train: int
    held_out: int
    columns: int
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> LayerScore:
        """The hook with the highest score."""
        return max(self.layers, key=lambda layer: layer.score.value)

    def __str__(self) -> str:
        wide = max(len(layer.hook) for layer in self.layers)
        head = (
            f"{self.estimator} probe of {self.meaning}, reading: {self.reading} ({self.columns} columns); "
            f"{self.train} training prompts, R² on {self.held_out} held out"
        )
        titles = f"  {'hook':<{wide}}{'R² [95 % interval]':>26}{'shuffled':>10}{'untrained':>11}{'prompt only':>13}"
        notes = [f"note: {text}" for text in self.notes]
        return "\n".join([head, titles, *(_row(layer, wide) for layer in self.layers), *notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("target", "meaning", "reading", "estimator", "train", "held_out", "columns")
        return {
            **{name: getattr(self, name) for name in names},
            "layers": [layer.to_dict() for layer in self.layers],
            "notes": list(self.notes),
        }


def _row(layer: LayerScore, wide: int) -> str:
    controls: Sequence[Score] = (layer.shuffled, layer.untrained, layer.prompt_only)
    cells = "".join(f"{control.value:>{width}.3f}" for control, width in zip(controls, (10, 11, 13), strict=True))
    return (
        f"  {layer.hook:<{wide}}{layer.score!s:>26}{cells}{'' if layer.above_controls else '   not above its controls'}"
    )
