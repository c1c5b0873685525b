"""On other kernels a trained softmax model keeps solving with the kernel it learned, and on real data it stays near its
kernel ridge regression."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from analyses.claims.cached_case import CachedCase, worse_seed
from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.diabetes import diabetes, look_alikes, penalised_errors, references
from analyses.claims.plots import draw_curves
from analyses.claims.process_case import ratio, task_of
from models import zoo
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

MODEL = "gp-softmax"
PROMPTS, FULL, QUERIES = 512, 8192, 16
DRAWS, FULL_DRAWS = 2048, 65536


@dataclass(frozen=True)
class Distances:
    """rms distances of a model's answers, over the rms of the KRR of the data's kernel, and how far the two KRRs are
    apart; squared errors of the model and of either KRR."""

    training: float
    data: float
    apart: float
    errors: Mapping[str, float]

    @property
    def keeps(self) -> bool:
        """Is the model nearer to the KRR of its training kernel."""
        return self.training < self.data


def measure(
    settings: Settings,
    models: Mapping[int, HookedTransformer] | None = None,
    family: GaussianProcess | None = None,
    prompts: int | None = None,
    draws: int | None = None,
) -> Findings:
    models, family = models or zoo.seeds(MODEL), family or task_of(MODEL)
    count = prompts or (FULL if settings.full else PROMPTS)
    other = {name: _distances(models, family, task, count, settings) for name, task in kernels(family).items()}
    real = diabetes(family, draws or (FULL_DRAWS if settings.full else DRAWS), settings)
    answered = {seed: real.answers(model) for seed, model in models.items()}
    penalised = penalised_errors(real)
    alike = {name: _alike(models, case) for name, case in look_alikes(real, min(penalised.values()), settings).items()}
    note = f"{count} prompts of {QUERIES} queries a kernel, seed {settings.seed}"
    measurements = {"kernels": _kernels({name: by for name, by in other.items() if name != "its own"}, note)}
    measurements |= _real(real, answered, alike, settings)
    details = {
        "kernels": {name: {str(seed): vars(found) for seed, found in by.items()} for name, by in other.items()},
        "real": {str(seed): real.errors(found).mean().item() for seed, found in answered.items()}
        | references(real, penalised),
        "distance_on_look_alikes": alike,
    }
    return Findings(measurements, _table(other, details["real"]), details, partial(_draw, other))


def kernels(family: GaussianProcess) -> dict[str, GaussianProcess]:
    """The kernel of training, and the four others."""
    ell = family.lengthscale
    return {
        "its own": family,
        "Matérn ½": replace(family, covariance="matern12"),
        "Matérn 3/2": replace(family, covariance="matern32"),
        "half of ℓ": replace(family, lengthscale=ell / 2),
        "twice ℓ": replace(family, lengthscale=2 * ell),
    }


def _distances(
    models: Mapping[int, HookedTransformer],
    family: GaussianProcess,
    task: GaussianProcess,
    count: int,
    settings: Settings,
) -> dict[int, Distances]:
    """Of every seed on the prompts of one task."""
    case = CachedCase.fresh(replace(task, n_query=QUERIES), count, settings)
    training = CachedCase(family, case.prompts).ridge
    return {seed: distances(case, training, case.answers(model)) for seed, model in models.items()}


def distances(case: CachedCase, training: Tensor, answers: Float[Tensor, "prompt query"]) -> Distances:
    """Of answers from KRR with the training kernel and with that of the data."""
    size = _rms(case.ridge)
    predictions = {"model": answers, "training": training, "data": case.ridge}
    return Distances(
        training=_rms(answers - training) / size,
        data=_rms(answers - case.ridge) / size,
        apart=_rms(training - case.ridge) / size,
        errors={name: case.errors(found).mean().item() for name, found in predictions.items()},
    )


def _rms(values: Tensor) -> float:
    return values.square().mean().sqrt().item()


def _kernels(other: Mapping[str, Mapping[int, Distances]], note: str) -> Measurement:
    """Kernels on which all seeds are nearer to the KRR of their training kernel."""
    count = sum(all(found.keeps for found in by.values()) for by in other.values())
    listed = "; ".join(
        f"{name}: " + ", ".join(f"{found.training:.3f} and {found.data:.3f}" for found in by.values())
        for name, by in other.items()
    )
    text = f"rms distance from the KRR of the training kernel and from that of the data's, by seed, {listed}"
    return Measurement.exact(count, f"{text}; over the size of the latter, λ the same; {note}")


def _alike(models: Mapping[int, HookedTransformer], case: CachedCase) -> float:
    """Distance from KRR with the training kernel over its size, the worse seed."""
    return max(_rms(case.answers(model) - case.ridge) / _rms(case.ridge) for model in models.values())


def _real(
    real: CachedCase, answered: Mapping[int, Tensor], alike: Mapping[str, float], settings: Settings
) -> dict[str, Measurement]:
    """Errors and distances on the real data."""
    ridge = real.ridge
    note = (
        f"{real.prompts.count} prompts of {real.task.n} patients and one more, seed {settings.seed}; body-mass index "
        "mapped linearly to [−1, 1], progression to mean 0 and variance 1, over all 442 patients; the interval "
        "resamples prompts, not patients"
    )
    size = ridge.square().mean(-1)
    found = {
        seed: (
            ratio(real.errors(answers), real.errors(ridge), note, settings),
            _root(ratio((answers - ridge).square().mean(-1), size, note, settings)),
        )
        for seed, answers in answered.items()
    }
    errors, gaps = (worse_seed({seed: both[which] for seed, both in found.items()}) for which in range(2))
    listed = ", ".join(f"{distance:.3f} on {name}" for name, distance in alike.items())
    return {"real": errors, "real-distance": replace(gaps, note=f"{gaps.note}. For comparison {listed}")}


def _root(squared: Measurement) -> Measurement:
    low, high = squared.interval
    return Measurement(squared.value**0.5, (low**0.5, high**0.5), squared.note)


def _table(other: Mapping[str, Mapping[int, Distances]], real: Mapping[str, Any]) -> str:
    lines = [
        f"{MODEL} on other kernels: rms distance from KRR over its size, squared errors",
        f"{'':<12}{'seed':>5}{'training k':>12}{'data k':>8}{'apart':>8}{'error':>9}{'training k':>12}{'data k':>8}",
    ]
    for name, by in other.items():
        for seed, found in by.items():
            model, training, data = (found.errors[key] for key in ("model", "training", "data"))
            lines.append(
                f"{name:<12}{seed:>5}{found.training:>12.3f}{found.data:>8.3f}{found.apart:>8.3f}"
                f"{model:>9.4f}{training:>12.4f}{data:>8.4f}"
            )
    lines += ["", "diabetes, squared error in units of the variance of progression"]
    lines += [f"  {f'seed {name}' if name.isdigit() else name:<36}{error:>7.3f}" for name, error in real.items()]
    return "\n".join(lines)


def _draw(other: Mapping[str, Mapping[int, Distances]], path: Path) -> None:
    curves = {}
    for seed in next(iter(other.values())):
        found = sorted((by[seed] for by in other.values()), key=lambda by: by.apart)
        for key, label in {"training": "of its training kernel", "data": "of the data's kernel"}.items():
            curves[f"from the KRR {label}, seed {seed}"] = (
                [by.apart for by in found],
                [getattr(by, key) for by in found],
            )
    draw_curves(
        curves,
        path,
        title=f"{MODEL} on other kernels",
        x="rms distance of the two KRRs, over the size of the data's (0: its own kernel)",
        y="rms distance of the model's answers, likewise",
        log_y=False,
    )
