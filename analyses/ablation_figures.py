"""Figures of ablations: kernel swaps as a heat map, replaced parts and early exits as curves over the layers."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from analyses.figures import plt, save_figure
from interp.ablation import Ablation, Row, WordAblation
from interp.ablation.effects import MOVED
from interp.ablation.result import TITLES

CEILING, FLOOR = 1e6, 1e-12


def draw_ablation(ablation: Ablation, name: str, path: Path, metric: str | None = None) -> None:
    """A panel for each kind of intervention, of one metric: the task error where there is one."""
    metric = metric or next(iter(ablation.clean))
    kinds = [kind for kind in TITLES if ablation.of(kind)]
    across = min(len(kinds), 3)
    down = -(-len(kinds) // across)
    figure, panels = plt.subplots(down, across, figsize=(5.6 * across, 4.4 * down), layout="constrained", squeeze=False)
    for axes in panels.flat[len(kinds) :]:
        axes.set_axis_off()
    for axes, kind in zip(panels.flat, kinds, strict=False):
        draw: Callable[..., None] = _swaps if kind == "kernel" else _curves
        draw(axes, ablation.of(kind), metric, ablation.clean[metric])
        axes.set_title(TITLES[kind], fontsize=10)
    figure.suptitle(f"{name}: {metric}, {ablation.prompts} prompts", fontsize=11)
    save_figure(figure, path)


def _swaps(axes: Any, rows: Sequence[Row], metric: str, clean: float) -> None:
    """Kernels down, layers across; shade log10 of the value."""
    kernels = list(dict.fromkeys(_name(row) for row in rows))
    places = list(dict.fromkeys(row.intervention.label for row in rows))
    values = {(_name(row), row.intervention.label): row.effects[metric].value for row in rows}
    grid = [[values.get((kernel, place), math.nan) for place in places] for kernel in kernels]
    shades = [[math.log10(min(max(value, FLOOR), CEILING)) for value in line] for line in grid]
    finite = [shade for line in shades for shade in line if math.isfinite(shade)]
    low = min(finite) if metric == MOVED else max(min(finite), math.log10(max(clean, FLOOR)) - 0.1)
    image = axes.imshow(shades, cmap="Blues", aspect="auto", vmin=low, vmax=max(*finite, low + 1e-3))
    middle = (low + max(finite)) / 2
    for i, line in enumerate(grid):
        for j, value in enumerate(line):
            colour = "white" if shades[i][j] > middle else "black"
            axes.text(j, i, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=6)
    axes.set_yticks(range(len(kernels)), kernels, fontsize=7)
    axes.set_xticks(range(len(places)), [place.removeprefix("layer ") for place in places], fontsize=7)
    axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("layers whose kernel is swapped")
    axes.figure.colorbar(image, ax=axes, label=f"log₁₀ {metric}")


def _curves(axes: Any, rows: Sequence[Row], metric: str, clean: float) -> None:
    """Value by layer with its interval, a curve for each mode (and head); the clean value as a line."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        heads = row.intervention.heads
        label = row.intervention.what + ("" if heads is None else f", head {', '.join(map(str, heads))}")
        curves.setdefault(label, []).append(row)
    for label, mine in curves.items():
        effects = [row.effects[metric] for row in mine]
        known = [(row.intervention.layers[0], effect) for row, effect in zip(mine, effects, strict=True)]
        known = [(x, effect) for x, effect in known if math.isfinite(effect.value)]
        values = [effect.value for _, effect in known]
        below = [max(e.change - e.interval[0], 0) for _, e in known]
        above = [max(e.interval[1] - e.change, 0) for _, e in known]
        axes.errorbar([x for x, _ in known], values, [below, above], fmt="o-", ms=3, capsize=2, label=label)
    if clean > 0:
        axes.axhline(clean, color="black", lw=0.8, ls="--", label="clean")
    axes.set_yscale("log")
    axes.set_xlabel("depth of the read-out" if rows[0].intervention.kind == "exit" else "layer")
    axes.set_ylabel(f"{metric} (95 % of the paired change)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if len(curves) <= 8:
        axes.legend(frameon=False, fontsize=7)


def draw_word(word: WordAblation, name: str, path: Path) -> None:
    """Relative errors with and without the word."""
    figure, axes = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
    errors = {label: min(value, CEILING) for label, value in word.errors.items() if not math.isnan(value)}
    axes.barh(list(errors), list(errors.values()))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("relative error of the prediction")
    axes.set_title(f"{name} without {word.word}", fontsize=10)
    save_figure(figure, path)


def _name(row: Row) -> str:
    return row.intervention.what + (" (matched)" if row.intervention.note else "")
