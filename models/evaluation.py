"""How well a model answers fresh prompts: its token forward, in float64, with the tails shown."""

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts import PromptFamily, Prompts
from models.transformer import HookedTransformer

CENTRAL = 0.99
BATCH = 1024


@dataclass(frozen=True)
class Spread:
    """A quantity over prompts. `central_mean` leaves out the lowest and highest 0.5 %; heavy tails move `mean`."""

    median: float
    mean: float
    central_mean: float
    rms: float
    q90: float
    q99: float
    maximum: float

    @classmethod
    def of(cls, values: Float[Tensor, " prompt"]) -> "Spread":
        ordered = values.double().nan_to_num(nan=math.inf, posinf=math.inf).sort().values
        cut = round(len(ordered) * (1 - CENTRAL) / 2)
        central = ordered[cut : len(ordered) - cut]
        q90, q99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))].item() for share in (0.9, 0.99))
        mean, rms = ordered.mean().item(), ordered.square().mean().sqrt().item()
        return cls(ordered.median().item(), mean, central.mean().item(), rms, q90, q99, ordered[-1].item())


@dataclass(frozen=True)
class Evaluation:
    """A model's errors on fresh prompts, in float64.

    Args:
        prompts, seed: which prompts.
        squared_error: mean over the entries of D of (prediction - D*)², a prompt.
        relative_error: ‖prediction - D*‖ / ‖D*‖, a prompt; heavy-tailed where D* is a single number.
        pooled_relative_error: (Σ ‖prediction - D*‖² / Σ ‖D*‖²)^½ over all prompts.
        zero_squared_error: the squared error of the answer 0.
        blown_up: prompts whose squared error exceeds the mean squared error of the answer 0.
    """

    prompts: int
    seed: int
    squared_error: Spread
    relative_error: Spread
    pooled_relative_error: float
    zero_squared_error: Spread
    blown_up: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return _finite(asdict(self))


def evaluate(model: HookedTransformer, family: PromptFamily, *, count: int = 4096, seed: int = 0) -> Evaluation:
    """The errors of `model` on `count` fresh prompts of a family."""
    prompts = family.sample(count, seed=seed)
    prediction = predictions(model, prompts)
    gap = prediction - prompts.target
    squared, answer = gap.square().sum((1, 2)), prompts.target.square().sum((1, 2))
    entries = prompts.n_query * prompts.d_out
    return Evaluation(
        prompts=count,
        seed=seed,
        squared_error=Spread.of(squared / entries),
        relative_error=Spread.of((squared / answer).sqrt()),
        pooled_relative_error=pooled_relative_error(prediction, prompts.target),
        zero_squared_error=Spread.of(answer / entries),
        blown_up=int((~(squared <= answer.mean())).sum()),
    )


def pooled_relative_error(prediction: Float[Tensor, "batch query y"], target: Float[Tensor, "batch query y"]) -> float:
    """(Σ ‖prediction - D*‖² / Σ ‖D*‖²)^½ over all prompts."""
    return ((prediction - target).square().sum() / target.square().sum()).sqrt().item()


@torch.no_grad()
def predictions(model: HookedTransformer, prompts: Prompts) -> Float[Tensor, "batch query y"]:
    """The model's answers in float64, whatever its own precision, on the CPU."""
    double = copy.deepcopy(model).cpu().double()
    return torch.cat([double.predict(tokens) for tokens in prompts.tokens.split(BATCH)])


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values
