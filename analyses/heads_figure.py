"""The figure of what heads and MLPs compute: scores, operators, decodable quantities and MLPs by layer."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analyses.figures import plt, save_figure
from interp.heads import HeadFit, HeadsReport
from interp.heads.decodable import NAMES
from interp.heads.scores import FORMS, MEANING
from interp.heads.text import shown
from interp.probes.scores import Score

COLOURS = ("C0", "C1", "C2")


def draw_heads(report: HeadsReport, name: str, path: Path) -> None:
    """Four panels; dashed grey lines are controls, bars 95 % intervals."""
    figure, axes = plt.subplots(2, 2, figsize=(13, 8), layout="constrained")
    heads = _widest(report)
    _scores(axes[0, 0], heads)
    _operators(axes[0, 1], heads)
    _decodable(axes[1, 0], report)
    _mlps(axes[1, 1], report)
    for panel in axes.flat:
        panel.grid(alpha=0.3)
    figure.suptitle(f"{name}: what its heads and MLPs compute (true kernel {report.covariance}, λ = {report.lam:g})")
    save_figure(figure, path)


def _widest(report: HeadsReport) -> list[HeadFit]:
    """Of every head the route that carries most weight."""
    found: dict[tuple[int, int], HeadFit] = {}
    for head in shown(report):
        kept = found.setdefault((head.layer, head.head), head)
        if head.operator.mass > kept.operator.mass:
            found[head.layer, head.head] = head
    return [found[key] for key in sorted(found)]


def _scores(axes: Axes, heads: list[HeadFit]) -> None:
    for i, form in enumerate(FORMS):
        _points(axes, [head.scores.forms[i].score for head in heads], MEANING[form], COLOURS[i], (i - 1) * 0.12)
    _points(axes, [head.untrained_scores.best.score for head in heads], "untrained, its best form", "grey")
    for i, head in enumerate(heads):
        size = head.scores.forms[0].bandwidth
        if size is not None and head.scores.forms[0].score.value > 0.5:
            axes.annotate(f"h = {size:.2f}", (i, 1.03), ha="center", fontsize=8)
    _label(axes, heads, "scores regressed on a form of x, x′", "held-out R²")
    axes.set_ylim(-0.15, 1.12)


def _operators(axes: Axes, heads: list[HeadFit]) -> None:
    _points(axes, [head.operator.true for head in heads], "true kernel", "C0")
    for colour, kernel in zip(("C1", "C2"), ("rbf", "laplace"), strict=True):
        nearest = [head.operator.best[kernel] for head in heads]
        _points(axes, [each.score for each in nearest], f"{kernel}, best ℓ", colour, 0.1 if colour == "C1" else 0.2)
    _points(axes, [head.operator.uniform for head in heads], "uniform to true kernel", "black")
    _points(axes, [head.untrained_operator.true for head in heads], "untrained to true kernel", "grey")
    for i, head in enumerate(heads):
        axes.annotate(f"ℓ {head.operator.best['rbf']}", (i, 0.02), ha="center", fontsize=8, color="C1")
    _label(axes, heads, "operator of the head: distance to D⁻¹K", "relative Frobenius distance")
    axes.set_ylim(0, None)


def _points(axes: Axes, scores: list[Score], label: str, colour: str, shift: float = 0.0) -> None:
    values = [score.value for score in scores]
    below = [max(score.value - score.interval[0], 0) for score in scores]
    above = [max(score.interval[1] - score.value, 0) for score in scores]
    style = "--" if colour in ("grey", "black") else "o-"
    places = [i + shift for i in range(len(scores))]
    axes.errorbar(places, values, (below, above), fmt=style, color=colour, label=label, markersize=4, capsize=2)


def _label(axes: Axes, heads: list[HeadFit], title: str, what: str) -> None:
    routes = list(dict.fromkeys(head.route for head in heads))
    single = len(routes) == 1
    names = [f"{head.layer}.{head.head}" + ("" if single else f"\n{_short(head.route)}") for head in heads]
    axes.set_xticks(range(len(heads)), names, fontsize=8)
    axes.set_xlabel(f"layer.head{f', {routes[0]}' if single else ', its route of most weight (i inputs, l labels)'}")
    axes.set_ylabel(what)
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def _short(route: str) -> str:
    first, _, second = route.partition(" → ")
    return f"{first[0]}→{second[0]}"


def _decodable(axes: Axes, report: HeadsReport) -> None:
    for colour, (target, found) in zip(COLOURS, report.decodable.items(), strict=False):
        layers, name = found.report.layers, NAMES[target]
        depths = [layer.depth or 0 for layer in layers]
        axes.plot(depths, [layer.score.value for layer in layers], "o-", color=colour, label=name)
        axes.plot(
            depths,
            [layer.untrained.value for layer in layers],
            "--",
            color=colour,
            alpha=0.6,
            label=f"{name}, untrained",
        )
        axes.axhline(found.own_token.value, color=colour, ls=":", alpha=0.6, label=f"{name}, from the token's x and y")
    axes.set_xlabel("depth (blocks that have acted)")
    axes.set_ylabel("held-out R² of a ridge probe")
    axes.set_title("what the tokens of the context points hold", fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if report.decodable:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _mlps(axes: Axes, report: HeadsReport) -> None:
    labels = {"entries": "own x, y", "state": "own x, y, p, α", "cross": "attention output, Ky, Kα", "all": "all"}
    layers = [fit.layer for fit in report.mlps]
    for colour, (name, label) in zip(("C0", "C1", "C2", "C3"), labels.items(), strict=True):
        axes.plot(layers, [fit.scores[name].value for fit in report.mlps], "o-", color=colour, label=label)
        if name in ("state", "cross"):
            values = [fit.untrained[name].value for fit in report.mlps]
            axes.plot(layers, values, "--", color=colour, alpha=0.6, label=f"{label}, untrained")
    axes.plot(layers, [fit.shuffled.value for fit in report.mlps], "--", color="grey", label="shuffled rows")
    axes.set_xlabel("layer")
    axes.set_ylabel("held-out R² of the MLP's output")
    axes.set_title("what explains the MLPs' outputs", fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(-0.1, 1.1)
    if report.mlps:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
