"""Figures of a comparison: layers against steps of every solver, and the fan of errors over context length."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.colors import LogNorm

from analyses.figures import plt, save_figure
from interp.comparison import Comparison, Fan

COLUMNS = 3
LEAST = 1e-2  # relative distance, the dark end of the shades
FAN_COLUMNS = 4


def draw_comparison(found: Comparison, fan: Fan | None, name: str, prefix: Path) -> list[Path]:
    """PREFIX-heat.png and, where there is a fan, PREFIX-fan.png."""
    paths = [prefix.with_name(f"{prefix.name}-heat.png")]
    draw_heat_maps(found, name, paths[0])
    if fan is not None:
        paths.append(prefix.with_name(f"{prefix.name}-fan.png"))
        draw_fan(fan, name, paths[-1])
    return paths


def draw_heat_maps(found: Comparison, name: str, path: Path) -> None:
    """A panel a solver: relative distance of every layer to every step, and the map of metric A drawn in."""
    measured, judged = found.measured[found.readout], found.judged[found.readout]["A"]
    figure, panels = _grid(len(measured.solvers), COLUMNS, (3.6, 2.6))
    image = None
    for axes, solver in zip(panels, measured.solvers, strict=False):
        table = measured.distance[solver].mean(0)
        layers, steps = table.shape
        edges = [[column - 0.5 for column in range(steps + 1)], [row + 0.5 for row in range(layers + 1)]]
        norm = LogNorm(vmin=LEAST, vmax=1.0, clip=True)
        image = axes.pcolormesh(*edges, table.numpy(), norm=norm, cmap="viridis")
        axes.plot(judged.assigned[solver].steps, range(1, layers + 1), "o-", color="white", markersize=4, linewidth=1)
        axes.set_xscale("symlog", linthresh=4)
        axes.set_xlim(-0.5, steps - 0.5)
        axes.set_xticks([tick for tick in (0, 1, 2, 4, 8, 16, 32, 64, 128) if tick < steps])
        axes.set_xticklabels([str(tick) for tick in (0, 1, 2, 4, 8, 16, 32, 64, 128) if tick < steps])
        axes.minorticks_off()
        axes.set_yticks(range(1, layers + 1))
        axes.set_title(f"{solver}: A = {judged.distance[solver]:.3f}", fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.set_ylabel("depth (layers)", fontsize=8)
    if image is not None:
        figure.colorbar(image, ax=panels, label="distance / rms(KRR)", extend="min")
    figure.suptitle(f"{name}, {found.readout}: layers against steps; white: the map of metric A", fontsize=11)
    save_figure(figure, path)


def draw_fan(fan: Fan, name: str, path: Path) -> None:
    """The model's layers first, then a panel a solver; the error of kernel ridge regression dashed in each."""
    figure, panels = _grid(1 + len(fan.solvers), FAN_COLUMNS, (3.0, 2.7), sharey=True)
    model = f"{name}, {fan.readout}"
    _curves(panels[0], fan, fan.layers, [f"{depth + 1}" for depth in range(len(fan.layers))], model, "layer")
    for axes, (solver, curves) in zip(panels[1:], fan.solvers.items(), strict=False):
        _curves(axes, fan, curves, [str(step) for step in fan.steps], solver, "step")
    figure.suptitle("error of the prediction of f, by layer and by step; dashed: kernel ridge regression", fontsize=11)
    save_figure(figure, path)


def _curves(axes: Any, fan: Fan, curves: Any, labels: list[str], title: str, legend: str) -> None:
    shades = matplotlib.colormaps["viridis"]
    for index, (curve, label) in enumerate(zip(curves, labels, strict=True)):
        colour = shades(index / max(len(labels) - 1, 1) * 0.9)
        axes.plot(fan.lengths, curve, ".-", color=colour, label=label, linewidth=1.2)
    axes.plot(fan.lengths, fan.krr, "k--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(0.8 * min(fan.krr), 2.0)
    axes.set_xticks(fan.lengths, [str(n) for n in fan.lengths])
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("context points", fontsize=8)
    axes.set_ylabel("rms error / rms(f)", fontsize=8)
    axes.grid(alpha=0.3)
    axes.legend(title=legend, fontsize=6, title_fontsize=7, frameon=False, loc="lower left")


def _grid(count: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, list[Any]]:
    """A figure with `count` panels, at most `columns` a row; the places left over are empty."""
    columns = min(columns, count)
    rows = -(-count // columns)
    shape = (columns * size[0] + 1, rows * size[1] + 0.5)
    figure, panels = plt.subplots(rows, columns, figsize=shape, layout="constrained", squeeze=False, **options)
    flat = list(panels.flatten())
    for axes in flat[count:]:
        axes.set_axis_off()
    return figure, flat
