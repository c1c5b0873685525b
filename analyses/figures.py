"""Figures."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from interp.solvers import ConjugateGradient, GradientDescent, LeastSquares, NewtonSchulz, iterate
from interp.stats import central_rms, pooled_errors
from interp.unrolling import UpdateRule
from interp.unrolling.certify import residual_states
from models.prompts import Prompts
from models.transformer import HookedTransformer

SOLVERS = {
    "gradient descent, best fixed step": GradientDescent(),
    "Newton–Schulz": NewtonSchulz(),
    "conjugate gradients": ConjugateGradient(),
}


def error_by_depth(model: HookedTransformer, rule: UpdateRule, prompts: Prompts) -> dict[str, list[float]]:
    """Relative rms error (central 99 % of prompts) after 0, 1, … L layers or solver steps, on the same prompts."""

    def errors(predictions: list[Float[Tensor, "prompt query out"]]) -> list[float]:
        return [central_rms(pooled_errors(predicted, prompts.target)) for predicted in predictions]

    states = residual_states(model, prompts.tokens)
    level = rule.levels[-1]
    curves = {
        "model": errors([rule.layout.predict(state) for state in states]),
        f"rule ({level})": errors([rule.read(state) for state in rule.states(prompts.tokens, level)]),
    }
    problem = LeastSquares(prompts.A, prompts.C)
    for name, solver in SOLVERS.items():
        curves[name] = errors([prompts.B @ w for w in iterate(solver, problem, rule.depth)])
    return curves


def draw_error_by_depth(curves: Mapping[str, list[float]], title: str, path: Path) -> None:
    """One line a curve, errors on a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, errors in curves.items():
        style = {"model": "o-", **{key: "s--" for key in curves if key.startswith("rule")}}.get(name, ".-")
        axes.plot(range(len(errors)), errors, style, label=name, markerfacecolor="none" if "rule" in name else None)
    axes.set_yscale("log")
    axes.set_xlabel("depth (layers, or steps of a solver)")
    axes.set_ylabel("relative rms error of the prediction")
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write and close a figure; a directory or an unwritable place is refused in one sentence."""
    try:
        if path.is_dir():
            raise ValueError(f"cannot write the figure {path}: it is a directory; give the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"cannot write the figure {path}: {error.strerror or error}") from error
    finally:
        plt.close(figure)


def draw_confusion(confusion: Mapping[str, Mapping[str, int]], title: str, path: Path) -> None:
    """Truth down, verdict across, the share of each truth's instances as shade and the count as number."""
    truths = list(confusion)
    verdicts = list(dict.fromkeys([*truths, *(verdict for counts in confusion.values() for verdict in counts)]))
    figure, axes = plt.subplots(figsize=(8.5, 7.5), layout="constrained")
    counts = [[confusion[truth].get(verdict, 0) for verdict in verdicts] for truth in truths]
    axes.imshow([[count / sum(row) for count in row] for row in counts], cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                shade = "white" if count > sum(row) / 2 else "black"
                axes.text(j, i, str(count), ha="center", va="center", color=shade)
    axes.set_xticks(range(len(verdicts)), verdicts, rotation=45, ha="right")
    axes.set_yticks(range(len(truths)), truths)
    axes.set_xlabel("verdict")
    axes.set_ylabel("what it is")
    axes.set_title(title)
    save_figure(figure, path)
