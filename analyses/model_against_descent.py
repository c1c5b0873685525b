"""A model's error on its task beside that of tuned gradient steps, and how much of its answer is a gradient step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.gradient_step import GradientShare, gradient_directions, gradient_share, tuned_steps
from models.prompts import PromptFamily, Prompts

CHUNK = 4096  # prompts at a time: a causal model holds a moment a row
SIGMAS = 3.0
Answerer = Callable[[Prompts], Float[Tensor, "batch query out"]]


@dataclass(frozen=True)
class Loss:
    """Mean squared error over prompts, its standard error, and the spread of its mean over batches of a size.

    `recorded` is a loss that others report for one batch, in the same convention: half the mean squared error where
    `half`.
    """

    mse: float
    error: float
    prompts: int
    batch: int
    lowest: float
    highest: float
    recorded: float | None = None
    half: bool = False

    @property
    def shown(self) -> float:
        return self.mse * self.factor

    @property
    def factor(self) -> float:
        return 0.5 if self.half else 1.0

    @property
    def name(self) -> str:
        return "half-MSE" if self.half else "MSE"

    @property
    def inside(self) -> bool | None:
        """Does the recorded loss lie within what batches of the size give; None with fewer than two batches."""
        if self.recorded is None or self.prompts < 2 * self.batch:
            return None
        return self.factor * self.lowest <= self.recorded <= self.factor * self.highest

    def __str__(self) -> str:
        f = self.factor
        text = (
            f"{self.name} {f * self.mse:.4g} ± {f * self.error:.2g} on {self.prompts} prompts; batches of {self.batch} "
            f"give {f * self.lowest:.4g} … {f * self.highest:.4g}"
        )
        if self.recorded is None:
            return text
        if self.inside is None:
            return f"{text}, one batch, so nothing is said of the recorded {self.recorded:g}; give more prompts"
        return f"{text}, the recorded {self.recorded:g} lies {'inside' if self.inside else 'OUTSIDE'}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "mse": self.mse,
            "standard_error": self.error,
            "prompts": self.prompts,
            "batch": self.batch,
            "batches": [self.lowest, self.highest],
            "recorded": self.recorded,
            "recorded_is_half": self.half,
            "recorded_inside": self.inside,
        }


@dataclass(frozen=True)
class Rival:
    """Tuned gradient steps on the same prompts; `gap` is the model's error less the rival's, with its standard error.

    Args:
        steps: how many. `nearer`: the share of prompts on which the rival is nearer to the target than the model.
        coefficients: of B (AᵀA)^{j−1} AᵀC, j = 1 … steps, of least squares on other prompts; of one, the step size.
    """

    steps: int
    coefficients: tuple[float, ...]
    mse: float
    gap: float
    gap_error: float
    nearer: float

    @property
    def verdict(self) -> str:
        """ "beats", "loses to" or "ties with": the rival against the model."""
        if abs(self.gap) <= SIGMAS * self.gap_error:
            return "ties with"
        return "beats" if self.gap > 0 else "loses to"

    def sentence(self, factor: float, name: str) -> str:
        """The verdict, in the convention of a loss."""
        size = f"(step size {self.coefficients[0]:.4g}) " if self.steps == 1 else ""
        what = (
            "one tuned gradient step"
            if self.steps == 1
            else f"the best {self.steps} gradient steps of fixed coefficients"
        )
        return (
            f"{what} {size}{self.verdict} the model: {name} {factor * self.mse:.4g}, the model's less its own "
            f"{factor * self.gap:+.4g} ± {factor * self.gap_error:.2g}; nearer on {self.nearer:.0%} of the prompts"
        )

    def to_dict(self) -> dict[str, Any]:
        names = ("steps", "mse", "gap", "gap_error", "nearer", "verdict")
        return {**{name: getattr(self, name) for name in names}, "coefficients": list(self.coefficients)}


@dataclass(frozen=True)
class Standing:
    """A model's loss, its gradient step, and its rivals."""

    loss: Loss
    gradient: GradientShare
    rivals: tuple[Rival, ...] = field(default=())

    def __str__(self) -> str:
        rivals = [f"  {rival.sentence(self.loss.factor, self.loss.name)}" for rival in self.rivals]
        return "\n".join([f"error on the task: {self.loss}", f"{self.gradient}", "verdict", *rivals])

    def to_dict(self) -> dict[str, Any]:
        rivals = [rival.to_dict() for rival in self.rivals]
        return {"loss": self.loss.to_dict(), "gradient_step": self.gradient.to_dict(), "rivals": rivals}


def stand(
    answer: Answerer,
    family: PromptFamily,
    count: int,
    steps: int,
    seed: int,
    batch: int = 2048,
    recorded: float | None = None,
    half: bool = False,
) -> Standing:
    """Measure a model on fresh prompts; the rivals' coefficients come from others.

    Args:
        answer: the model's answers to prompts.
        count: prompts; a quarter as many, at least 1024, for the rivals' coefficients.
        steps: rivals of 1 … steps gradient steps.
    """
    fitting = list(chunks(family, max(1024, count // 4), seed + 1))
    known = torch.cat([_directions(prompts, steps) for prompts in fitting], dim=1)
    wanted = torch.cat([prompts.target for prompts in fitting])
    coefficients = [tuned_steps(known[:k], wanted) for k in range(1, steps + 1)]
    answers, targets, directions = [], [], []
    for prompts in chunks(family, count, seed):
        answers.append(answer(prompts))
        targets.append(prompts.target)
        directions.append(_directions(prompts, steps))
    given, target, along = torch.cat(answers), torch.cat(targets), torch.cat(directions, dim=1)
    own = _squared(given, target)
    rivals = tuple(_rival(c, along, target, own) for c in coefficients)
    return Standing(_loss(own, batch, recorded, half), gradient_share(given, along[0]), rivals)


def chunks(family: PromptFamily, count: int, seed: int) -> Iterator[Prompts]:
    """`count` fresh prompts, some at a time, each chunk from a seed of its own."""
    for index, start in enumerate(range(0, count, CHUNK)):
        yield family.sample(min(CHUNK, count - start), seed=(seed * 10_007 + index) % 2**62)


def _directions(prompts: Prompts, steps: int) -> Float[Tensor, "step batch query out"]:
    return gradient_directions(prompts.A, prompts.B, prompts.C, steps)


def _squared(given: Tensor, target: Tensor) -> Float[Tensor, "batch"]:
    return (given - target).square().flatten(1).mean(1)


def _loss(squared: Float[Tensor, "batch"], batch: int, recorded: float | None, half: bool) -> Loss:
    size = min(batch, len(squared))
    means = torch.stack([some.mean() for some in squared.split(size) if len(some) == size])
    error = squared.std().item() / len(squared) ** 0.5
    return Loss(
        squared.mean().item(), error, len(squared), size, means.min().item(), means.max().item(), recorded, half
    )


def _rival(coefficients: Tensor, directions: Tensor, target: Tensor, own: Tensor) -> Rival:
    answer = torch.tensordot(coefficients, directions[: len(coefficients)], dims=1)
    squared = _squared(answer, target)
    gap = own - squared
    return Rival(
        len(coefficients),
        tuple(coefficients.tolist()),
        squared.mean().item(),
        gap.mean().item(),
        gap.std().item() / len(gap) ** 0.5,
        (gap > 0).double().mean().item(),
    )
