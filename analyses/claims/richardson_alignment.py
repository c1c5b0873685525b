"""Layers of trained softmax transformers follow preconditioned Richardson iteration more closely than its rivals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.process_comparison import FULL, Sizes, compared, control, task_of
from interp.comparison import OWN, PRECONDITIONED_RICHARDSON, TO_KRR, Comparison, Controlled, Margin
from interp.comparison.metrics import A_LIN, A
from models import zoo
from models.transformer import HookedTransformer

MODELS, CAUSAL = ("gp-softmax", "gp-softmax-d2"), "gp-gpt2"
UNTRAINED = 5


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    positive = control(sizes)
    found: dict[str, Comparison] = {}
    for name in (*MODELS, CAUSAL):
        for seed, model in zoo.seeds(name).items():
            found[f"{name} {seed}"] = compared(model, task_of(name), sizes, settings, None if found else positive)
    built = next(iter(found.values())).built
    assert built is not None
    pairs = {name: each for name, each in found.items() if not name.startswith(CAUSAL)}
    measurements = {
        **_of_control(built),
        **_of_trained(pairs),
        "gpt2": _causal([each for name, each in found.items() if name not in pairs]),
        "untrained": untrained(zoo.load(MODELS[0]), sizes, settings),
    }
    return Findings(measurements, _table(found), {name: each.to_dict() for name, each in found.items()})


def _of_control(built: Controlled) -> dict[str, Measurement]:
    """The built network by its own read-out."""
    values = built.measured[OWN].values(A_LIN)
    mine = values.pop(PRECONDITIONED_RICHARDSON)
    rival = min(values, key=lambda name: values[name].mean())
    note = f"the tracked construction, {len(mine)} groups of prompts"
    return {
        "built-readout": _mean(mine, note),
        "built-rivals": _mean(values[rival], f"{rival}; {note}"),
    }


def _mean(values: torch.Tensor, note: str) -> Measurement:
    found = Margin.of(values)
    return Measurement(found.mean, found.interval, note)


def _of_trained(found: Mapping[str, Comparison]) -> dict[str, Measurement]:
    named = {name: each.names for name, each in found.items()}
    best = {name: nearest(each) for name, each in found.items()}
    paces = {name: _pace(each) for name, each in found.items()}
    listed = "; ".join(f"{name}: {' = '.join(names) or 'none'}" for name, names in named.items())
    text = f"verdicts, the nearest first: {listed}"
    ties = (
        "Unpreconditioned Richardson is as near: on inputs that are spread evenly row sums hardly differ, and the two "
        f"iterations are nearly one; see clustered-contrast. {text}"
    )
    return {
        "trained": Measurement.exact(sum(PRECONDITIONED_RICHARDSON in names for names in named.values()), text),
        "alone": Measurement.exact(sum(names == (PRECONDITIONED_RICHARDSON,) for names in named.values()), ties),
        "one-step": Measurement.exact(
            sum(linear <= 2 * free for linear, free, _ in paces.values()),
            "A-lin and A of preconditioned Richardson, and its step after each layer: "
            + "; ".join(f"{name}: {linear:.3g}, {free:.3g}, {steps}" for name, (linear, free, steps) in paces.items())
            + f". Nearest by A: {', '.join(best.values())}. The steps a layer are not equal but roughly geometric",
        ),
    }


def nearest(found: Comparison) -> str:
    """The solver with the smallest A."""
    return found.judged[TO_KRR][A].best


def _pace(found: Comparison) -> tuple[float, float, str]:
    linear, free = (found.judged[TO_KRR][metric] for metric in (A_LIN, A))
    steps = free.assigned[PRECONDITIONED_RICHARDSON].steps
    name = PRECONDITIONED_RICHARDSON
    return linear.distance[name], free.distance[name], ", ".join(map(str, steps))


def _causal(found: list[Comparison]) -> Measurement:
    named = [PRECONDITIONED_RICHARDSON in each.names for each in found]
    listed = "; ".join(" = ".join(each.names) or f"none ({_refusal(each)})" for each in found)
    return Measurement.exact(sum(named) / len(named), f"verdicts by seed: {listed}")


def _refusal(found: Comparison) -> str:
    return "; ".join(found.judged[TO_KRR][A].refused[:1])


def untrained(model: HookedTransformer, sizes: Sizes, settings: Settings, count: int = UNTRAINED) -> Measurement:
    """Random networks, each judged as a model."""
    few, named = Sizes(3, sizes.train, sizes.test, sizes.steps), []
    for seed in range(count):
        fresh = HookedTransformer(replace(model.cfg, seed=1000 + seed), model.layout)
        named.append(compared(fresh, task_of(MODELS[0]), few, settings).names)
    text = (
        f"{count} initialisations of {MODELS[0]}'s architecture, verdicts: {[' = '.join(n) or 'none' for n in named]}"
    )
    return Measurement.exact(sum(bool(names) for names in named), text)


def _table(found: Mapping[str, Comparison]) -> str:
    lines = ["relative distance by A, probe to KRR, mean over groups of prompts"]
    for name, each in found.items():
        judged: Any = each.judged[TO_KRR][A]
        cells = "".join(f"  {solver} {value:.3f}" for solver, value in judged.distance.items())
        lines.append(f"{name:<16} verdict {each.verdict}\n{'':<16}{cells}")
    return "\n".join(lines)
