"""Held-out R² with its interval, from sums over blocks of prompts."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.stats import t as student
from torch import Tensor

BLOCKS = 40
LEVEL = 0.95


@dataclass(frozen=True)
class Score:
    """A held-out R² and its 95 % interval."""

    value: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


class BlockSums:
    """Σ 1, Σ e², Σ y and Σ y² of each block of prompts and column: all that R² and its jackknife need.

    y is taken about a fixed centre, so that no large mean cancels.
    """

    def __init__(self, blocks: int, centre: Float[Tensor, "column"]) -> None:
        self.centre = centre
        self.count = torch.zeros(blocks, 1, dtype=torch.float64, device=centre.device)
        self.errors, self.first, self.second = (self.count.repeat(1, len(centre)) for _ in range(3))

    def add(
        self,
        block: int,
        truth: Float[Tensor, "sample column"],
        predicted: Float[Tensor, "sample column"],
    ) -> None:
        """Samples of one block."""
        about = truth - self.centre
        self.count[block] += len(truth)
        self.errors[block] += (truth - predicted).square().sum(0)
        self.first[block] += about.sum(0)
        self.second[block] += about.square().sum(0)

    def score(self) -> Score:
        """R² averaged over the columns, as scikit-learn's `r2_score`; the interval by leaving out one block at a time.

        Student's t on the jackknife's standard error, blocks − 1 degrees of freedom: prompts are independent, the
        samples of a prompt and the columns need not be. It does not count the spread over training prompts.

        Raises:
            ValueError: a target column is constant over the held-out prompts.
        """
        value = self._r2(None).item()
        left_out = self._r2(torch.arange(len(self.count)))
        blocks = len(self.count)
        error = math.sqrt((blocks - 1) / blocks * (left_out - left_out.mean()).square().sum().item())
        half = float(student.ppf((1 + LEVEL) / 2, blocks - 1)) * error
        return Score(value, (value - half, value + half))

    def _r2(self, without: Tensor | None) -> Tensor:
        sums = [part.sum(0) for part in (self.count, self.errors, self.first, self.second)]
        if without is not None:
            parts = (self.count, self.errors, self.first, self.second)
            sums = [total - part for total, part in zip(sums, parts, strict=True)]
        count, errors, first, second = sums
        spread = second - first.square() / count
        if not bool((spread > 0).all()):
            raise ValueError("a target column is constant over the held-out prompts, so that no score is defined")
        return (1 - errors / spread).mean(-1)


def block_of(position: int, count: int, blocks: int) -> int:
    """The block of the prompt at a position among `count` held-out ones; consecutive, as even as can be."""
    return position * blocks // count
