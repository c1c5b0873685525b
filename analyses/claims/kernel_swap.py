"""With another attention kernel at inference a trained softmax model breaks, and its layers leave Richardson iteration."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_case import ProcessCase, ratio, task_of
from analyses.compare_model import widened
from analyses.subject import FRESH
from interp.ablation import swap_kernel, swapped
from interp.comparison import (
    CANDIDATES,
    PRECONDITIONED_RICHARDSON,
    TO_KRR,
    Draws,
    Margin,
    Problems,
    measure as layers_of,
)
from interp.comparison.metrics import C
from models import zoo
from models.transformer import HookedTransformer

MODEL, ALL = "gp-softmax", "every layer"
KERNELS = ("linear", "uniform", "laplace", "gaussian", "relu", "elu1", "exp")
CLAIMED = KERNELS[:3]


@dataclass(frozen=True)
class Sizes:
    """Prompts for errors and for matching norms; groups, prompts and steps for the alignment."""

    prompts: int = 2048
    reference: int = 256
    groups: int = 10
    train: int = 96
    test: int = 32
    steps: int = 64


FULL = Sizes(16384, 1024, 10, 512, 128, 128)


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    case = ProcessCase.draw(task_of(MODEL), sizes.prompts, settings)
    reference = case.task.sample(sizes.reference, seed=FRESH + settings.seed, device=settings.device).tokens
    models = {seed: model.double().to(settings.device) for seed, model in zoo.seeds(MODEL).items()}
    clean = {seed: case.errors(case.answers(model)) for seed, model in models.items()}
    errors = {
        (kernel, matched, seed): swapped_errors(case, model, kernel, reference if matched else None)
        for kernel in KERNELS
        for matched in (True, False)
        for seed, model in models.items()
    }
    note = f"{sizes.prompts} prompts, norms matched on {sizes.reference} others, seed {settings.seed}"
    measurements = {kernel: _least(errors, clean, kernel, note, settings) for kernel in CLAIMED}
    drops = {seed: drop(model, sizes, reference, settings) for seed, model in models.items()}
    most = max(drops.values(), key=lambda found: found.mean)
    text = f"probes to KRR, fitted anew in the swapped model; {sizes.groups} groups of {sizes.test} prompts"
    measurements["alignment"] = Measurement(most.mean, most.interval, text)
    details = {
        "error_over_clean": {
            f"{kernel}, {'norms matched' if matched else 'as it is'}, seed {seed}": value
            for (kernel, matched, seed), value in _ratios(errors, clean).items()
        },
        "alignment": {str(seed): found.mean for seed, found in drops.items()},
    }
    return Findings(measurements, _table(_ratios(errors, clean), drops), details)


def swapped_errors(
    case: ProcessCase, model: HookedTransformer, kernel: str, reference: Tensor | None
) -> Float[Tensor, "prompt"]:
    """Squared errors with another kernel in every layer, output norms matched on reference prompts if there are any."""
    answers = swapped(model, case.prompts.tokens, kernel, rescale=reference is not None, reference=reference)
    return case.errors(answers[..., 0])


def drop(model: HookedTransformer, sizes: Sizes, reference: Tensor, settings: Settings) -> Margin:
    """C of preconditioned Richardson with linear attention in every layer less that of the model, over groups."""
    model, task = widened(model, task_of(MODEL))
    solver = {PRECONDITIONED_RICHARDSON: CANDIDATES[PRECONDITIONED_RICHARDSON]}

    def draw(count: int, index: int) -> Problems:
        return Problems.of(task.sample(count, seed=FRESH + 1000 * settings.seed + index, device=settings.device))

    def distance() -> Float[Tensor, "group"]:
        draws = Draws(draw, sizes.train, sizes.test, sizes.groups)
        found = layers_of(model, draws, task.kernel, task.lam, solver, sizes.steps)[TO_KRR]
        return found.values(C)[PRECONDITIONED_RICHARDSON]

    own = distance()
    wide = task.sample(len(reference) // 4, seed=FRESH + settings.seed, device=settings.device).tokens
    with edited(model, swap_kernel(model, "linear", rescale=True, reference=wide).hooks()):
        other = distance()
    return Margin.of(own - other)


@contextmanager
def edited(model: Any, hooks: list[Any]) -> Iterator[None]:
    """The model with hooks that stay while other runs add theirs."""
    with model.hooks(fwd_hooks=hooks):
        yield


def _least(
    errors: Mapping[tuple[str, bool, int], Tensor],
    clean: Mapping[int, Tensor],
    kernel: str,
    note: str,
    settings: Settings,
) -> Measurement:
    """The seed that suffers less."""
    found = [ratio(errors[kernel, True, seed], clean[seed], note, settings) for seed in clean]
    plain = ", ".join(f"{_mean_ratio(errors[kernel, False, seed], clean[seed]):.3g}" for seed in clean)
    least = min(found, key=lambda by: by.value)
    return replace(least, note=f"{note}; with the norms as they come out: {plain}")


def _mean_ratio(errors: Tensor, clean: Tensor) -> float:
    return (errors.mean() / clean.mean()).item()


def _ratios(
    errors: Mapping[tuple[str, bool, int], Tensor], clean: Mapping[int, Tensor]
) -> dict[tuple[str, bool, int], float]:
    return {key: _mean_ratio(found, clean[key[2]]) for key, found in errors.items()}


def _table(ratios: Mapping[tuple[str, bool, int], float], drops: Mapping[int, Margin]) -> str:
    lines = [f"squared error of {MODEL} with another kernel in every layer, over its own", f"{'':<10}"]
    columns = [(matched, seed) for matched in (True, False) for seed in drops]
    lines[1] += "".join(f"{('matched' if matched else 'as is') + f', seed {seed}':>18}" for matched, seed in columns)
    for kernel in KERNELS:
        lines.append(f"{kernel:<10}" + "".join(f"{ratios[kernel, *column]:>18.3g}" for column in columns))
    changes = ", ".join(
        f"seed {seed} {by.mean:+.3f} [{by.interval[0]:+.3f}, {by.interval[1]:+.3f}]" for seed, by in drops.items()
    )
    return "\n".join([*lines, f"change of C with linear attention, norms matched: {changes}"])
