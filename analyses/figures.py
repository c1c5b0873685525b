"""Figures."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from jaxtyping import Float
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
    if path.is_dir():
        raise ValueError(f"cannot write the figure {path}: it is a directory; give the name of a file")
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"cannot write the figure {path}: {error.strerror or error}") from error
    finally:
        plt.close(figure)
