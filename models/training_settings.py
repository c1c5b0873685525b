"""What every recipe states, whatever kind of model it trains: the prompts, the optimiser, and how they meet."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.layout import BlockLayout
from models.prompts import PromptFamily, Prompts
from models.transformer import HookedTransformer

Answers = Float[Tensor, "batch query y"]


@dataclass(frozen=True)
class TrainingSettings(ABC):
    """The prompts and the optimiser of a run: AdamW with a linear warm-up and a cosine down to `final_rate` · `rate`.

    A subclass adds the model: what is moved, what it answers, and what is shipped in the end.

    Args:
        name, about: what it is called, and one sentence on what it trains.
        family: the prompts.
        steps, batch, rate, warmup, final_rate, betas, eps, weight_decay: of the optimiser.
        clip: the largest norm of the gradient of all parameters; a longer one is shortened. None for no such limit.
    """

    name: str
    about: str
    family: PromptFamily
    _: KW_ONLY
    steps: int
    rate: float
    batch: int = 128
    warmup: int = 100
    final_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-12
    weight_decay: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        self.check_numbers(
            sizes=("steps", "batch", "warmup"), positive=("rate", *(("clip",) if self.clip is not None else ()))
        )

    def check_numbers(self, sizes: Sequence[str], positive: Sequence[str]) -> None:
        """Raise unless the settings of these names are whole numbers of at least 1, or positive numbers."""
        for name in (*sizes, *positive):
            value = getattr(self, name)
            if not value > 0 or (name in sizes and not isinstance(value, int)):
                kind = "a positive whole number" if name in sizes else "positive"
                raise ValueError(f"recipe {self.name!r}: {name}={value} must be {kind}")

    @property
    @abstractmethod
    def prior(self) -> str:
        """What the run was told about the solution."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision of the run."""

    @property
    @abstractmethod
    def layout(self) -> BlockLayout:
        """The layout of the trained model."""

    @abstractmethod
    def training_prompts(self, seed: int, device: torch.device) -> Prompts:
        """The prompts of a step."""

    @abstractmethod
    def parameters(self, seed: int) -> nn.Module:
        """What is moved, as it starts."""

    @abstractmethod
    def decayed(self, parameters: nn.Module) -> list[nn.Parameter]:
        """The parameters that the weight decay acts on."""

    @abstractmethod
    def answers(self, parameters: nn.Module, prompts: Prompts) -> Answers:
        """The predictions for training prompts, differentiable."""

    @abstractmethod
    def loss(self, prediction: Answers, target: Answers) -> Float[Tensor, ""]:
        """What the optimiser lowers."""

    @abstractmethod
    def to_model(self, parameters: nn.Module) -> HookedTransformer:
        """The model that the parameters stand for, on the CPU."""

    def watched(self, parameters: nn.Module) -> list[Tensor]:
        """What must stay finite, or the step is taken back: here the parameters."""
        return list(parameters.parameters())

    def merit(self, metrics: Mapping[str, Any]) -> float | None:
        """The error by which seeds are compared, from their evaluations: here the pooled relative error."""
        return metrics["pooled_relative_error"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "family": self.family.to_dict(), "betas": list(self.betas), "prior": self.prior}
