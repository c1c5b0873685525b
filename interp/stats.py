"""Relative errors of predictions, and summaries that survive heavy tails."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

CENTRAL = 0.99


def relative_errors(measured: Float[Tensor, "prompt *shape"], reference: Float[Tensor, "prompt *shape"]) -> Tensor:
    """‖measured − reference‖ / ‖reference‖ of each prompt [prompt]; inf where a value is not finite."""
    gap = (measured - reference).flatten(1).norm(dim=1)
    size = reference.flatten(1).norm(dim=1)
    errors = torch.where(gap == 0, 0, gap / size)
    return torch.nan_to_num(errors, nan=torch.inf)


def pooled_errors(measured: Float[Tensor, "prompt *shape"], reference: Float[Tensor, "prompt *shape"]) -> Tensor:
    """‖measured − reference‖ of each prompt, over the rms of ‖reference‖ (central 99 % of prompts); inf if not finite.

    A prompt whose reference happens to be near 0, as scalar answers can be, does not count for more than others.
    """
    gap = (measured - reference).flatten(1).norm(dim=1)
    size = central_rms(reference.flatten(1).norm(dim=1).nan_to_num(nan=torch.inf))
    errors = torch.where(gap == 0, 0, gap / size) if size else torch.where(gap == 0, 0.0, torch.inf).to(gap)
    return torch.nan_to_num(errors, nan=torch.inf)


def central(values: Float[Tensor, "prompt"]) -> Float[Tensor, "kept"]:
    """The values without the lowest and the highest 0.5 %, in order."""
    cut = round((1 - CENTRAL) / 2 * len(values))
    return values.sort().values[cut : len(values) - cut]


def central_rms(values: Float[Tensor, "prompt"]) -> float:
    """Root mean square over the central 99 %."""
    return central(values).square().mean().sqrt().item()


@dataclass(frozen=True)
class ErrorSummary:
    """Errors over prompts, relative: max and rms of all, rms of the central 99 %, median and 99 % quantile."""

    max_relative_error: float
    rms_relative_error: float
    central_rms_relative_error: float
    median_relative_error: float
    q99_relative_error: float
    prompts: int

    @classmethod
    def of(cls, errors: Float[Tensor, "prompt"]) -> "ErrorSummary":
        ordered = errors.sort().values
        return cls(
            ordered[-1].item(),
            ordered.square().mean().sqrt().item(),
            central_rms(errors),
            ordered[len(ordered) // 2].item(),
            ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))].item(),
            len(errors),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
