"""Where inputs cluster softmax models follow the preconditioned iteration, and linear attention does not."""

from collections.abc import Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_case import task_of
from analyses.claims.process_comparison import FULL, Sizes, distances
from interp.comparison import PRECONDITIONED_RICHARDSON, RICHARDSON, Margin
from interp.comparison.metrics import C
from models import zoo
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

SOFTMAX, LINEAR = "gp-softmax", "gp-linear"
SHARES = (0.0, 0.6)
Key = tuple[str, int, float]
"""A model, its seed, the share of inputs in a cluster."""


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    found = {
        (name, seed, share): cosines(model, replace(task_of(name), clustered=share), sizes, settings)
        for name in (SOFTMAX, LINEAR)
        for seed, model in zoo.seeds(name).items()
        for share in SHARES
    }
    contrasts = {key: Margin.of(by[PRECONDITIONED_RICHARDSON] - by[RICHARDSON]) for key, by in found.items()}
    note = f"{sizes.groups} groups of {sizes.test} prompts, 60 % of inputs in a cluster; probes fitted to KRR"
    by_model = {name: [by for key, by in contrasts.items() if key[0] == name and key[2]] for name in (SOFTMAX, LINEAR)}
    measurements = {
        "softmax": _measurement(min(by_model[SOFTMAX], key=lambda by: by.mean), note),
        "linear": _measurement(max(by_model[LINEAR], key=lambda by: by.mean), note),
    }
    return Findings(measurements, _table(contrasts, found), {_label(key): by.mean for key, by in contrasts.items()})


def cosines(
    model: HookedTransformer, task: GaussianProcess, sizes: Sizes, settings: Settings
) -> dict[str, Float[Tensor, "group"]]:
    """C of preconditioned Richardson and of gradient descent, by group of prompts."""
    found = distances(model, task, (PRECONDITIONED_RICHARDSON, RICHARDSON), sizes, settings).values(C)
    return {solver: 1 - values for solver, values in found.items()}


def _measurement(found: Margin, note: str) -> Measurement:
    return Measurement(found.mean, found.interval, note)


def _label(key: Key) -> str:
    name, seed, share = key
    return f"{name} {seed}, {share:.0%} clustered"


def _table(contrasts: Mapping[Key, Margin], found: Mapping[Key, Mapping[str, Tensor]]) -> str:
    lines = ["C of preconditioned Richardson, and less that of gradient descent; 95 % intervals over groups of prompts"]
    for key, by in contrasts.items():
        cosine = found[key][PRECONDITIONED_RICHARDSON].mean()
        lines.append(f"{_label(key):<32}{cosine:>7.3f}{by.mean:>+9.3f} [{by.interval[0]:+.3f}, {by.interval[1]:+.3f}]")
    return "\n".join(lines)
