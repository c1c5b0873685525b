"""The figure that most claims need: curves over one axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from analyses.figures import plt, save_figure

Curve = tuple[Sequence[float], Sequence[float]]


def draw_curves(
    curves: Mapping[str, Curve],
    path: Path,
    *,
    title: str,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = True,
    marks: Mapping[str, float] | None = None,
) -> None:
    """One line a curve, named in the legend; `marks` are horizontal lines, such as a published value."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, (across, up) in curves.items():
        axes.plot(across, up, ".-", label=name)
    for name, height in (marks or {}).items():
        axes.axhline(height, linestyle=":", color="black", linewidth=1)
        axes.annotate(name, (0.01, height), xycoords=("axes fraction", "data"), fontsize="small", va="bottom")
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    save_figure(figure, path)
