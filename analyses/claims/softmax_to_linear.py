"""Retrained with linear attention a model answers worse, and retrained on another kernel it solves with that kernel."""

from collections.abc import Mapping

from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_case import ProcessCase, ratio, task_of
from models import zoo
from models.transformer import HookedTransformer

SOFTMAX, LINEAR, LAPLACE = "gp-softmax", "gp-linear", "gp-laplace"
PROMPTS, FULL = 8192, 65536

Seeds = Mapping[int, HookedTransformer]


def measure(settings: Settings, prompts: int | None = None) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    models = {name: zoo.seeds(name) for name in (SOFTMAX, LINEAR, LAPLACE)}
    own, other = (ProcessCase.draw(task_of(name), count, settings) for name in (SOFTMAX, LAPLACE))
    note = f"{count} prompts of {own.task.n} points, seed {settings.seed}"
    measurements = {
        **compare(own, models[SOFTMAX], models[LINEAR], note, settings),
        "laplace": _laplace(other, models[SOFTMAX], models[LAPLACE], note, settings),
    }
    details = {name: _errors(own, models[name]) for name in (SOFTMAX, LINEAR, LAPLACE)}
    details |= {f"{name} on Laplace data": _errors(other, models[name]) for name in (SOFTMAX, LAPLACE)}
    return Findings(measurements, _table(details, own, other), details)


def compare(case: ProcessCase, softmax: Seeds, linear: Seeds, note: str, settings: Settings) -> dict[str, Measurement]:
    """Errors of linear attention over those of softmax, and what each has beyond KRR: the pair with the least ratio."""
    ridge = case.errors(case.ridge)
    best, worst = _by_error(case, linear)[0], _by_error(case, softmax)[-1]
    pair = f"the better seed of {LINEAR} over the worse of {SOFTMAX}; {note}"
    return {
        "retrained": ratio(best, worst, pair, settings),
        "excess": ratio(best - ridge, worst - ridge, pair, settings),
    }


def _laplace(case: ProcessCase, softmax: Seeds, laplace: Seeds, note: str, settings: Settings) -> Measurement:
    """How much worse the model of another kernel does, in units of KRR's error: the pair with the least difference."""
    best, worst = _by_error(case, softmax)[0], _by_error(case, laplace)[-1]
    text = f"the better seed of {SOFTMAX} less the worse of {LAPLACE}, on Laplace data; {note}"
    return ratio(best - worst, case.errors(case.ridge), text, settings)


def _by_error(case: ProcessCase, seeds: Seeds) -> list[Tensor]:
    """Squared errors by prompt, one tensor a seed, the best seed first."""
    return sorted((case.errors(case.answers(model)) for model in seeds.values()), key=lambda errors: errors.mean())


def _errors(case: ProcessCase, seeds: Seeds) -> dict[str, float]:
    ridge = case.errors(case.ridge).mean().item()
    return {str(seed): case.errors(case.answers(model)).mean().item() / ridge for seed, model in seeds.items()}


def _table(details: Mapping[str, Mapping[str, float]], own: ProcessCase, other: ProcessCase) -> str:
    ridge = ", ".join(f"{case.errors(case.ridge).mean():.4f} ({case.task.kernel})" for case in (own, other))
    lines = [f"squared error over that of KRR, by seed; KRR has {ridge}"]
    lines += [f"{name:<28}" + "".join(f"{value:>10.3f}" for value in by.values()) for name, by in details.items()]
    return "\n".join(lines)
