"""The picture of a decoding: what is left of the error by eigenvalue and depth, and where the prediction comes from."""

import math
from pathlib import Path

from matplotlib.axes import Axes

from analyses.figures import plt, save_figure
from interp.decoding import Decoding
from interp.decoding.text import heat, shown_shares

SMALLEST = 1e-6


def draw_decoding(decoding: Decoding, title: str, path: Path) -> None:
    """Two heat-maps: |1 − g s_l(g)| by eigenvalue and depth, and the share of each word in the prediction by layer.

    Where there is no single G, the error of w alone stands in the place of the first.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    _draw_errors(decoding, left)
    _draw_shares(decoding, right)
    figure.suptitle(title)
    save_figure(figure, path)


def _draw_errors(decoding: Decoding, axes: Axes) -> None:
    found = heat(decoding)
    if found is None:
        rows, labels, what = [decoding.w_relative_error.median(1).values.tolist()], ["all"], "‖w − A⁺C‖ / ‖A⁺C‖"
    else:
        rows, labels, what = found[0].tolist(), found[1], "|1 − g s(g)|, what is left of the error"
    values = [[math.log10(min(max(value, SMALLEST), 10)) for value in row] for row in rows]
    image = axes.imshow(values, cmap="viridis", aspect="auto", vmin=math.log10(SMALLEST) / 1.5, vmax=0)
    axes.figure.colorbar(image, ax=axes, label=f"log₁₀ of {what}")
    axes.set_xticks(range(len(rows[0])))
    axes.set_yticks(range(len(rows)), labels)
    axes.set_xlabel("depth (layers)")
    if found:
        axes.set_ylabel("eigenvalue g of AᵀA (median of its bin)")
    axes.set_title("inverse Hessian against 1/g" if found else "implicit weights (there is no single G)")


def _draw_shares(decoding: Decoding, axes: Axes) -> None:
    shares = shown_shares(decoding)
    words = list(dict.fromkeys(word for layer in shares for word in layer))
    values = [[layer.get(word, math.nan) for layer in shares] for word in words]
    largest = max(abs(value) for row in values for value in row if not math.isnan(value))
    image = axes.imshow(values, cmap="RdBu_r", aspect="auto", vmin=-largest, vmax=largest)
    axes.figure.colorbar(image, ax=axes, label="share of the prediction")
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if abs(value) >= 5e-4:
                shade = "white" if abs(value) > largest / 2 else "black"
                axes.text(j, i, f"{value:.3f}", ha="center", va="center", fontsize=8, color=shade)
    axes.set_xticks(range(len(shares)))
    axes.set_yticks(range(len(words)), words)
    axes.set_xlabel("layer")
    axes.set_title("contributions to the prediction")
