"""A softmax transformer predicts as ridge regression of least Bayes risk, not as gradient descent or least squares."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap, exponent
from analyses.claims.plots import draw_curves
from analyses.claims.regression_case import Case
from models import zoo
from models.prompts import GaussianRegression
from models.transformer import HookedTransformer

MODEL = "linreg-softmax"
PROMPTS, FULL = 4096, 16384
POINTS, AT = (5, 10, 15, 20), 10
FACTORS = tuple(3 ** (step / 2) for step in range(-2, 3))
"""Noise over that of training, from a third to 3 times."""
BLOCKS = 16


def measure(settings: Settings, prompts: int | None = None) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    model, task = zoo.load(MODEL).double().to(settings.device), zoo.family(MODEL)
    assert isinstance(task, GaussianRegression)

    def case(n: int, noise: float) -> Case:
        return ask(model, replace(task, n=n, noise=noise), count, settings)

    by_points = {n: case(n, task.noise) for n in POINTS}
    by_noise = {task.noise * factor: case(AT, task.noise * factor) for factor in FACTORS}
    points = {n: _compare(found, model.cfg.n_layers, task) for n, found in by_points.items()}
    noises = {sigma: _compare(found, model.cfg.n_layers, task) for sigma, found in by_noise.items()}
    note = f"{count} prompts, seed {settings.seed}"
    most, at = by_points[max(POINTS)], by_points[AT]
    descent = at.gradient_descent(points[AT]["steps"], points[AT]["step_size"])
    far = f"{AT} points, {_steps(points[AT])}, both nearest to the model; {note}"
    measurements = {
        "distance": _rms_ratio(
            most.ridge(most.penalty) - most.answers, most.ridge(most.penalty), f"{max(POINTS)} points, {note}", settings
        ),
        "nearest": _nearest(points, note),
        "over-gd": _rms_ratio(descent - at.answers, at.ridge(at.penalty) - at.answers, far, settings),
        "adapts": _adapts(by_noise, noises, task.noise**2 * task.d, note, settings.seed),
    }
    details = {"points": points, "noise": noises}
    return Findings(measurements, _table(points, noises), details, partial(_draw, noises, task))


@torch.no_grad()
def ask(model: HookedTransformer, task: GaussianRegression, count: int, settings: Settings) -> Case:
    """The model's answers to prompts of a task."""
    sample = task.sample(count, seed=settings.seed, device=settings.device)
    return Case.of(sample, model.predict(sample.tokens), task.noise**2 * task.d)


def _compare(case: Case, most: int, training: GaussianRegression) -> dict[str, Any]:
    """Distances of the model from each predictor."""
    steps, gamma = case.nearest_descent(most)
    return {
        "bayes": case.distance(case.ridge(case.penalty)),
        "least_squares": case.distance(case.ridge(0.0)),
        "descent": case.distance(case.gradient_descent(steps, gamma)),
        "training": case.distance(case.ridge(training.noise**2 * training.d)),
        "steps": steps,
        "step_size": gamma,
        "penalty": case.nearest_penalty(),
        "bayes_penalty": case.penalty,
    }


def _rms_ratio(over: Tensor, under: Tensor, note: str, settings: Settings) -> Measurement:
    """rms / rms, prompts resampled together."""
    over, under = over.square(), under.square()

    def ratio(at: Tensor) -> Tensor:
        return (over[at].mean(-1) / under[at].mean(-1)).sqrt()

    return bootstrap(ratio, torch.arange(len(over)), note, settings.seed)


def _nearest(points: Mapping[int, Mapping[str, Any]], note: str) -> Measurement:
    count = sum(by["bayes"] < min(by["least_squares"], by["descent"]) for by in points.values())
    listed = "; ".join(
        f"n = {n}: {by['bayes']:.3g}, {by['least_squares']:.3g}, {by['descent']:.3g}" for n, by in points.items()
    )
    text = "distances from Bayes, least squares and the nearest gradient descent over the size of Bayes's"
    return Measurement.exact(count, f"{text}, {listed}. {note}")


def _adapts(
    cases: Mapping[float, Case], noises: Mapping[float, Mapping[str, Any]], training: float, note: str, seed: int
) -> Measurement:
    found = [[case.part(slice(i, None, BLOCKS)).nearest_penalty() for i in range(BLOCKS)] for case in cases.values()]
    listed = ", ".join(f"{sigma:.2g}: {by['penalty']:.3g} ({by['bayes_penalty']:.3g})" for sigma, by in noises.items())
    text = (
        f"λ nearest to the model (of Bayes) at σ = {listed}. {_kept(noises, training)}; in the paper each noise has a "
        f"model of its own. {AT} points, {BLOCKS} blocks of prompts, {note}"
    )
    return exponent([sigma**2 for sigma in cases], torch.tensor(found), text, seed)


def _kept(noises: Mapping[float, Mapping[str, Any]], training: float) -> str:
    """How the penalties nearest to one model lie to that of Bayes at its training noise."""
    least, most = (pick(by["penalty"] for by in noises.values()) for pick in (min, max))
    return (
        f"One model, trained at one noise, keeps one penalty, {least:.2f} to {most:.2f}, and not that of Bayes at its "
        f"training noise either: {least / training - 1:+.0%} to {most / training - 1:+.0%} from λ = {training:.3g}"
    )


def _table(points: Mapping[int, Mapping[str, Any]], noises: Mapping[float, Mapping[str, Any]]) -> str:
    head = f"{'Bayes':>8}{'least squares':>15}{'descent':>9}  {'':<18}{'nearest λ':>10}{'Bayes λ':>9}"
    lines = [f"rms distance of the predictions of {MODEL}, over the size of Bayes's", f"{'points':>8}{head}"]
    lines += [f"{n:>8}{_row(by)}" for n, by in points.items()]
    lines += [f"{'noise':>8}{head}{'training λ':>12}  at {AT} points"]
    lines += [f"{sigma:>8.3g}{_row(by)}{by['training']:>12.3f}" for sigma, by in noises.items()]
    return "\n".join(lines)


def _row(by: Mapping[str, Any]) -> str:
    return (
        f"{by['bayes']:>8.3f}{by['least_squares']:>15.3f}{by['descent']:>9.3f}  {_steps(by):<18}{by['penalty']:>10.3g}"
        f"{by['bayes_penalty']:>9.3g}"
    )


def _steps(by: Mapping[str, Any]) -> str:
    return f"{by['steps']} steps of {by['step_size']:.3g}"


def _draw(noises: Mapping[float, Mapping[str, Any]], task: GaussianRegression, path: Path) -> None:
    sigmas = list(noises)
    curves = {
        label: (sigmas, [by[key] for by in noises.values()])
        for label, key in {"nearest to the model": "penalty", "Bayes, σ² d": "bayes_penalty"}.items()
    }
    draw_curves(
        curves,
        path,
        title=f"The ridge penalty of one model, trained at σ = {task.noise:g}",
        x="σ, standard deviation of the noise",
        y="ridge penalty λ",
        log_x=True,
        marks={"Bayes at the noise of training": task.noise**2 * task.d},
    )
