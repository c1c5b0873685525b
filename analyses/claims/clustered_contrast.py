"""Where inputs cluster softmax models follow the preconditioned iteration, and linear attention does not."""

from collections.abc import Mapping
from dataclasses import replace

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_comparison import FULL, Sizes, compared, task_of
from interp.comparison import PRECONDITIONED_RICHARDSON, RICHARDSON, TO_KRR, Comparison, Margin
from interp.comparison.metrics import C
from models import zoo

SOFTMAX, LINEAR = "gp-softmax", "gp-linear"
SHARES = (0.0, 0.6)
Key = tuple[str, int, float]
"""A model, its seed, the share of inputs in a cluster."""


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    found = {
        (name, seed, share): compared(model, replace(task_of(name), clustered=share), sizes, settings)
        for name in (SOFTMAX, LINEAR)
        for seed, model in zoo.seeds(name).items()
        for share in SHARES
    }
    contrasts = {key: contrast(each) for key, each in found.items()}
    note = f"{sizes.groups} groups of {sizes.test} prompts, 60 % of inputs in a cluster; probes fitted to KRR"
    by_model = {name: [by for key, by in contrasts.items() if key[0] == name and key[2]] for name in (SOFTMAX, LINEAR)}
    measurements = {
        "softmax": _measurement(min(by_model[SOFTMAX], key=lambda by: by.mean), note),
        "linear": _measurement(max(by_model[LINEAR], key=lambda by: by.mean), note),
    }
    return Findings(measurements, _table(contrasts, found), {_label(key): by.mean for key, by in contrasts.items()})


def contrast(found: Comparison) -> Margin:
    """C of preconditioned Richardson less that of gradient descent, over groups of prompts."""
    return found.contrast(C, PRECONDITIONED_RICHARDSON, RICHARDSON)


def _measurement(found: Margin, note: str) -> Measurement:
    return Measurement(found.mean, found.interval, note)


def _label(key: Key) -> str:
    name, seed, share = key
    return f"{name} {seed}, {share:.0%} clustered"


def _table(
    contrasts: Mapping[tuple[str, int, float], Margin], found: Mapping[tuple[str, int, float], Comparison]
) -> str:
    lines = ["C of preconditioned Richardson, and less that of gradient descent; 95 % intervals over groups of prompts"]
    for key, by in contrasts.items():
        cosine = 1 - found[key].judged[TO_KRR][C].distance[PRECONDITIONED_RICHARDSON]
        lines.append(f"{_label(key):<32}{cosine:>7.3f}{by.mean:>+9.3f} [{by.interval[0]:+.3f}, {by.interval[1]:+.3f}]")
    return "\n".join(lines)
