"""The figure of a probe: scores by layer as a heat map, the model's row above its controls."""

from pathlib import Path

from analyses.figures import plt, save_figure
from interp.probes import ProbeReport

ROWS = ("score", "shuffled", "untrained", "prompt_only")
LABELS = ("model", "shuffled targets", "untrained model", "prompt only")


def draw_probe(report: ProbeReport, name: str, path: Path) -> None:
    """R² as shade (0 to 1) and number, with half the width of its 95 % interval."""
    scores = [[getattr(layer, row) for layer in report.layers] for row in ROWS]
    figure, axes = plt.subplots(figsize=(2.6 + 1.05 * len(report.layers), 3.4), layout="constrained")
    shades = [[min(max(score.value, 0.0), 1.0) for score in row] for row in scores]
    image = axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(scores):
        for j, score in enumerate(row):
            half = (score.interval[1] - score.interval[0]) / 2
            colour = "white" if shades[i][j] > 0.5 else "black"
            axes.text(j, i, f"{score.value:.2f}\n±{half:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_yticks(range(len(ROWS)), LABELS)
    axes.set_xticks(range(len(report.layers)), [_short(layer.hook, layer.depth) for layer in report.layers])
    axes.set_xlabel("depth (blocks that have acted)" if report.layers[0].depth is not None else "hook")
    axes.set_title(f"{name}: {report.target}, {report.estimator} probe, {report.reading}", fontsize=10)
    figure.colorbar(image, ax=axes, label="held-out R²")
    save_figure(figure, path)


def _short(hook: str, depth: int | None) -> str:
    return str(depth) if depth is not None else hook.removeprefix("blocks.").replace("hook_", "")
