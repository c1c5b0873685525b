"""More layers of linear attention are GD++, which conditions the inputs, and no longer gradient descent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.gd_family import Spectral, gd_plus_plus, gradient_descent, scheduled
from analyses.claims.plots import draw_curves
from models import zoo
from models.prompts import LogUniformSpectrum, Prompts
from models.transformer import HookedTransformer

MODELS = {2: "eagle-depth2", 3: "eagle-depth3", 4: "eagle-d10"}
PROMPTS, FIT = 512, 256
WHY = (
    "GD++ has one (η, γ) for all layers, and the trained constants grow by about 1/‖A_l‖² from layer to layer; with "
    "constants of its own in each layer this is {} at L = 2, 3, 4."
)
SOLVERS: dict[str, Callable[[Spectral, int], list[tuple[float, float]]]] = {
    "gradient descent": gradient_descent,
    "GD++": gd_plus_plus,
    "GD++, constants a layer": scheduled,
}


@dataclass(frozen=True, eq=False)
class Compared:
    """A model beside one solver of as many steps: squares by prompt.

    Args:
        gap: of model − solver in the predictions.       cosine: of the weights w [prompt].
        solver_error, model_error: against the answers.  steps: (η, γ) of each.
    """

    gap: Float[Tensor, " prompt"]
    cosine: Float[Tensor, " prompt"]
    solver_error: Float[Tensor, " prompt"]
    model_error: Float[Tensor, " prompt"]
    steps: Sequence[tuple[float, float]]

    def numbers(self) -> dict[str, Any]:
        return {
            "distance_over_error": _rms_ratio(self.gap, self.model_error),
            "cosine": self.cosine.mean().item(),
            "error_over_model": _rms_ratio(self.solver_error, self.model_error),
            "steps": [list(pair) for pair in self.steps],
        }


def measure(settings: Settings, prompts: int = PROMPTS, fit: int = FIT) -> Findings:
    found = {depth: _compare(depth, prompts, fit, settings) for depth in MODELS}
    numbers = {depth: {name: one.numbers() for name, one in by.items()} for depth, by in found.items()}
    against = {depth: by["GD++"] for depth, by in found.items()}
    note = f"{_named()}, {prompts} prompts, seed {settings.seed}; constants by line search on {fit} others"
    own = {
        key: f"{WHY.format(_own(numbers, key))} {note}" for key in ("cosine", "error_over_model", "distance_over_error")
    }
    errors = {depth: (c.solver_error, c.model_error) for depth, c in against.items()}
    gaps = {depth: (c.gap, c.model_error) for depth, c in against.items()}
    measurements = {
        "nearer": _nearer(found, note),
        "cosine": _cosine(against, own["cosine"], settings.seed),
        "loss": _largest(errors, own["error_over_model"], settings.seed),
        "distance": _largest(gaps, own["distance_over_error"], settings.seed),
    }
    return Findings(measurements, _table(numbers), {"models": numbers}, partial(_draw, numbers))


def _compare(depth: int, prompts: int, fit: int, settings: Settings) -> dict[str, Compared]:
    name = MODELS[depth]
    sample, others = (
        zoo.prompts(name, count, seed=settings.seed + shift, device=settings.device)
        for count, shift in ((prompts, 0), (fit, 1))
    )
    w = implicit_weights(zoo.load(name).double().to(settings.device), sample)
    tuned, held_out = Spectral.of(others), Spectral.of(sample)
    answers = sample.B @ w
    found = {}
    for label, tune in SOLVERS.items():
        steps = tune(tuned, depth)
        theirs = held_out.weights(steps)
        found[label] = Compared(
            gap=_squares(answers - sample.B @ theirs),
            cosine=torch.cosine_similarity(w.flatten(1), theirs.flatten(1)).cpu(),
            solver_error=_squares(sample.B @ theirs - sample.target),
            model_error=_squares(answers - sample.target),
            steps=steps,
        )
    return found


@torch.no_grad()
def implicit_weights(model: HookedTransformer, sample: Prompts) -> Float[Tensor, "prompt x y"]:
    """∂prediction/∂query of a model that is linear in its queries: what it answers to the unit vectors."""
    d, answers = sample.A.shape[2], []
    for rows in torch.eye(d).to(sample.tokens).split(sample.n_query):
        tokens = sample.tokens.clone()
        tokens[:, -sample.n_query :] = 0
        tokens[:, -sample.n_query :, :d][:, : len(rows)] = rows
        answers.append(model.predict(tokens)[:, : len(rows)])
    return torch.cat(answers, dim=1)


def _squares(gap: Tensor) -> Float[Tensor, " prompt"]:
    return gap.square().flatten(1).sum(1).cpu()


def _rms_ratio(over: Tensor, under: Tensor) -> float:
    return (over.sum() / under.sum()).sqrt().item()


def _nearer(found: Mapping[int, Mapping[str, Compared]], note: str) -> Measurement:
    """How many models are nearer to GD++ than to gradient descent."""
    ratios = {d: _rms_ratio(by["GD++"].gap, by["gradient descent"].gap) for d, by in found.items()}
    listed = ", ".join(f"L = {depth}: {ratio:.3g}" for depth, ratio in ratios.items())
    return Measurement.exact(
        sum(ratio < 1 for ratio in ratios.values()),
        f"distance from GD++ over that from gradient descent, {listed}; {note}",
    )


def _cosine(against: Mapping[int, Compared], note: str, seed: int) -> Measurement:
    depth, compared = min(against.items(), key=lambda item: item[1].cosine.mean().item())
    return bootstrap(lambda x: x.mean(-1), compared.cosine, f"{MODELS[depth]}, L = {depth}. {note}", seed)


def _largest(pairs: Mapping[int, tuple[Tensor, Tensor]], note: str, seed: int) -> Measurement:
    """The depth with the largest rms ratio, prompts resampled together."""
    depth, (over, under) = max(pairs.items(), key=lambda item: _rms_ratio(*item[1]))
    return bootstrap(
        lambda at: (over[at].mean(-1) / under[at].mean(-1)).sqrt(),
        torch.arange(len(over)),
        f"{MODELS[depth]}, L = {depth}. {note}",
        seed,
    )


def _own(numbers: Mapping[int, Mapping[str, Mapping[str, Any]]], key: str) -> str:
    """A number of GD++ with constants of its own in each layer, by depth."""
    return ", ".join(f"{by['GD++, constants a layer'][key]:.3g}" for by in numbers.values())


def _named() -> str:
    """The models, by their tasks."""
    by_task: dict[str, list[str]] = {}
    for name in MODELS.values():
        by_task.setdefault(_task(name), []).append(name)
    return "; ".join(f"{', '.join(names)} on {task}" for task, names in by_task.items())


def _task(name: str) -> str:
    task = zoo.family(name)
    assert isinstance(task, LogUniformSpectrum)
    return f"n = {task.n}, d = {task.d}, {task.d_out} answers, condition number of A {task.kappa:g}"


def _table(numbers: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> str:
    head = f"{'layers':>6}  {'model':<14}{'solver':<24}{'distance/error':>15}{'cosine':>9}{'error/model':>12}  (η, γ)"
    lines = [_named(), head]
    for depth, by in numbers.items():
        for name, n in by.items():
            pairs = n["steps"] if len({tuple(pair) for pair in n["steps"]}) > 1 else n["steps"][:1]
            text = " ".join(f"({eta:.3g}, {gamma:.3g})" for eta, gamma in pairs)
            lines.append(
                f"{depth:>6}  {MODELS[depth]:<14}{name:<24}{n['distance_over_error']:>15.3f}{n['cosine']:>9.4f}"
                f"{n['error_over_model']:>12.3f}  {text}"
            )
    return "\n".join(lines)


def _draw(numbers: Mapping[int, Mapping[str, Mapping[str, Any]]], path: Path) -> None:
    curves = {name: (list(numbers), [by[name]["distance_over_error"] for by in numbers.values()]) for name in SOLVERS}
    draw_curves(
        curves,
        path,
        title="How far models of several layers are from first-order solvers",
        x="layers, and steps of the solver",
        y="distance of predictions / model's error",
        marks={"its own error": 1.0},
    )
