"""The effect of an intervention on a quantity of each prompt, the clean value and a paired interval beside it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import pooled_errors

Metric = Callable[[Tensor], Tensor]
"""Predictions [prompt, …] ↦ a number for each prompt [prompt]."""

RESAMPLES, LEVEL = 1000, 0.95
MOVED, TASK, KRR = "moved", "task error", "distance to KRR"


@dataclass(frozen=True)
class Effect:
    """Means over prompts; a prompt whose value is not finite makes them infinite.

    Args:
        metric: what is measured.
        clean, value: without and with the intervention.
        change: value − clean.
        interval: 95 %, of the change: prompts are drawn again, both values of a prompt together.
    """

    metric: str
    clean: float
    value: float
    change: float
    interval: tuple[float, float]

    @property
    def is_clear(self) -> bool:
        """Does the interval leave out 0."""
        return not self.interval[0] <= 0 <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Measure:
    """Metrics of predictions against the clean ones; every effect is over the same draws of prompts."""

    def __init__(self, metrics: Mapping[str, Metric], clean: Float[Tensor, "prompt *shape"], seed: int = 0) -> None:
        self.metrics = metrics
        self.clean = {name: values_of(name, metric, clean) for name, metric in metrics.items()}
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randint(len(clean), (RESAMPLES, len(clean)), generator=generator)
        self.counts = torch.zeros(RESAMPLES, len(clean), dtype=torch.float64)
        self.counts.scatter_add_(1, draws, torch.ones_like(draws, dtype=torch.float64))

    def effects(self, predictions: Float[Tensor, "prompt *shape"]) -> dict[str, Effect]:
        """One effect a metric."""
        return {name: self._effect(name, values_of(name, metric, predictions)) for name, metric in self.metrics.items()}

    def _effect(self, name: str, values: Float[Tensor, "prompt"]) -> Effect:
        clean = self.clean[name]
        change = values - clean
        if not change.isfinite().all():
            interval = (torch.inf, torch.inf)
        else:
            means = (self.counts @ change / len(change)).sort().values
            cut = round((1 - LEVEL) / 2 * RESAMPLES)
            interval = (means[cut].item(), means[RESAMPLES - 1 - cut].item())
        return Effect(name, clean.mean().item(), values.mean().item(), change.mean().item(), interval)


def values_of(name: str, metric: Metric, predictions: Tensor) -> Float[Tensor, "prompt"]:
    """The metric's values, in float64 on the CPU; what is not finite counts as infinite."""
    values = metric(predictions)
    if not isinstance(values, Tensor) or values.shape != predictions.shape[:1]:
        found = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"ablate: the metric {name!r} gives {found}, and must give one number for each prompt")
    return values.detach().cpu().double().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=torch.inf)


def standard_metrics(
    clean: Float[Tensor, "prompt *shape"], target: Tensor | None = None, krr: Tensor | None = None
) -> dict[str, Metric]:
    """Mean squared errors to the target and to a reference solution where given, and how far predictions moved: ‖new −
    clean‖ over the rms of ‖clean‖."""
    metrics: dict[str, Metric] = {}
    for name, known in ((TASK, target), (KRR, krr)):
        if known is not None:
            metrics[name] = squared_error_to(name, known, clean)
    return {**metrics, MOVED: lambda predictions: pooled_errors(predictions, clean)}


def squared_error_to(name: str, known: Tensor, clean: Tensor) -> Metric:
    """Mean over the entries of (prediction − known)², a prompt."""
    if known.shape != clean.shape:
        raise ValueError(f"ablate: {name} takes answers of shape {list(clean.shape)}, got {list(known.shape)}")
    if not known.isfinite().all():
        raise ValueError(f"ablate: the answers for {name!r} hold NaN or infinite values; leave those prompts out")
    return lambda predictions: (predictions - known.to(predictions)).square().flatten(1).mean(1)
