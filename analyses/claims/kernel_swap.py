"""With another attention kernel at inference a trained softmax model breaks, and leaves Richardson iteration."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims import process_comparison as comparison
from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_case import BATCH, ProcessCase, ratio, task_of
from analyses.subject import FRESH
from interp.ablation import swap_kernel
from interp.comparison import PRECONDITIONED_RICHARDSON, Margin
from interp.comparison.metrics import A, C
from interp.hooks import run_with_hooks
from models import zoo
from models.transformer import HookedTransformer

MODEL = "gp-softmax"
KERNELS = ("linear", "uniform", "laplace", "gaussian", "relu", "elu1", "exp")
CLAIMED = KERNELS[:3]


PROMPTS, FULL, REFERENCE = 1024, 16384, 256
SMALL = comparison.Sizes(groups=10, train=96, test=32, steps=64)


def measure(settings: Settings, prompts: int | None = None, sizes: comparison.Sizes | None = None) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    sizes = sizes or (comparison.FULL if settings.full else SMALL)
    case = ProcessCase.draw(task_of(MODEL), count, settings)
    reference = case.task.sample(REFERENCE, seed=FRESH + settings.seed, device=settings.device).tokens
    models = {seed: model.double().to(settings.device) for seed, model in zoo.seeds(MODEL).items()}
    clean = {seed: case.errors(case.answers(model)) for seed, model in models.items()}
    errors = {
        (kernel, matched, seed): swapped_errors(case, model, kernel, reference if matched else None)
        for kernel in KERNELS
        for matched in (True, False)
        for seed, model in models.items()
    }
    note = f"{count} prompts, norms matched on {REFERENCE} others, seed {settings.seed}"
    measurements = {kernel: _least(errors, clean, kernel, note, settings) for kernel in CLAIMED}
    drops = {seed: changes(model, "linear", settings, sizes) for seed, model in models.items()}
    most, apart = max(drops.values(), key=lambda found: found[0].mean)
    text = (
        f"probes to KRR, fitted anew in the swapped model; {sizes.groups} groups of {sizes.test} prompts. C compares "
        "directions of errors, and a model that has stopped solving errs where step 0 does, so C can rise as it "
        f"breaks. The distance A of its layers from Richardson's steps changes by {apart.mean:+.3f} "
        f"[{apart.interval[0]:+.3f}, {apart.interval[1]:+.3f}]"
    )
    measurements["alignment"] = Measurement(most.mean, most.interval, text)
    details = {
        "error_over_clean": {
            f"{kernel}, {'norms matched' if matched else 'as it is'}, seed {seed}": value
            for (kernel, matched, seed), value in _ratios(errors, clean).items()
        },
        "change_of_C": {str(seed): found.mean for seed, (found, _) in drops.items()},
        "change_of_A": {str(seed): found.mean for seed, (_, found) in drops.items()},
    }
    return Findings(measurements, _table(_ratios(errors, clean), drops), details)


@torch.no_grad()
def swapped_errors(
    case: ProcessCase, model: HookedTransformer, kernel: str, reference: Tensor | None
) -> Float[Tensor, "prompt"]:
    """Squared errors with another kernel in every layer, output norms matched on reference prompts if there are any."""
    swap = swap_kernel(model, kernel, rescale=reference is not None, reference=reference)
    output = torch.cat([run_with_hooks(model, tokens, swap.hooks()) for tokens in case.prompts.tokens.split(BATCH)])
    return case.errors(output[:, -case.prompts.n_query :, 0])


def changes(
    model: HookedTransformer, kernel: str, settings: Settings, sizes: comparison.Sizes
) -> tuple[Margin, Margin]:
    """What a kernel in every layer, norms matched, adds to the metrics C and A of preconditioned Richardson."""

    def edits(wide: HookedTransformer) -> Sequence[Any]:
        task = replace(task_of(MODEL), n_query=wide.layout.n_query)
        reference = task.sample(REFERENCE // 4, seed=FRESH + settings.seed, device=settings.device).tokens
        return swap_kernel(wide, kernel, rescale=True, reference=reference).hooks()

    def metrics(**options: Any) -> tuple[Tensor, Tensor]:
        solver = (PRECONDITIONED_RICHARDSON,)
        found = comparison.distances(model, task_of(MODEL), solver, sizes, settings, **options)
        return found.values(C)[PRECONDITIONED_RICHARDSON], found.values(A)[PRECONDITIONED_RICHARDSON]

    own, other = metrics(), metrics(edits=edits)
    return Margin.of(own[0] - other[0]), Margin.of(other[1] - own[1])


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


def _table(ratios: Mapping[tuple[str, bool, int], float], drops: Mapping[int, tuple[Margin, Margin]]) -> str:
    lines = [f"squared error of {MODEL} with another kernel in every layer, over its own", f"{'':<10}"]
    columns = [(matched, seed) for matched in (True, False) for seed in drops]
    lines[1] += "".join(f"{('matched' if matched else 'as is') + f', seed {seed}':>18}" for matched, seed in columns)
    for kernel in KERNELS:
        lines.append(f"{kernel:<10}" + "".join(f"{ratios[kernel, *column]:>18.3g}" for column in columns))
    for name, index in (("C", 0), ("A", 1)):
        cells = (f"seed {seed} {by[index].mean:+.3f}" for seed, by in drops.items())
        lines.append(f"change of {name} with linear attention, norms matched: {', '.join(cells)}")
    return "\n".join(lines)
