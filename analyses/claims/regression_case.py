"""In-context regression with one label: a model's answers beside ridge regression and gradient descent, by spectra."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from models.prompts import Prompts

PENALTIES, STEP_SIZES = (1e-4, 1e3), (1e-3, 1.0)
GRID = 24


@dataclass(frozen=True, eq=False)
class Case:
    """Prompts with the model's answers to them, and other predictors on the same prompts.

    Args:
        g: eigenvalues of G = AᵀA.
        parts: B v vᵀAᵀC for each eigenvector v, so that B s(G) AᵀC is the sum of s(g) times these.
        penalty: σ² d of these prompts, with which ridge regression has the least Bayes risk.
    """

    g: Float[Tensor, "prompt x"]
    parts: Float[Tensor, "prompt x"]
    answers: Float[Tensor, " prompt"]
    penalty: float

    @classmethod
    def of(cls, sample: Prompts, answers: Float[Tensor, "prompt 1 1"], penalty: float) -> "Case":
        """Of prompts with one query and one label column."""
        g, V = torch.linalg.eigh(sample.A.mT @ sample.A)
        parts = (sample.B @ V)[:, 0] * (V.mT @ (sample.A.mT @ sample.C))[..., 0]
        return cls(g.cpu(), parts.cpu(), answers[:, 0, 0].cpu(), penalty)

    def ridge(self, penalty: float) -> Float[Tensor, " prompt"]:
        """Predictions of ridge regression; of least squares for the penalty 0."""
        return (self.parts / (self.g + penalty)).sum(1)

    def gradient_descent(self, steps: int, gamma: float) -> Float[Tensor, " prompt"]:
        return (self.parts * (1 - (1 - gamma * self.g) ** steps) / self.g).sum(1)

    @cached_property
    def size(self) -> float:
        """rms of Bayes's predictions."""
        return self.ridge(self.penalty).square().mean().sqrt().item()

    def distance(self, prediction: Float[Tensor, " prompt"]) -> float:
        """rms distance of the model's answers from a prediction, over the size of Bayes's."""
        return (self.answers - prediction).square().mean().sqrt().item() / self.size

    def nearest_penalty(self) -> float:
        """The ridge penalty whose predictions are nearest to the model's."""
        return nearest(lambda penalty: self.distance(self.ridge(penalty)), *PENALTIES)

    def nearest_descent(self, most: int) -> tuple[int, float]:
        """The steps, up to `most`, and the step size of the gradient descent nearest to the model."""
        found = {
            steps: nearest(lambda gamma, k=steps: self.distance(self.gradient_descent(k, gamma)), *STEP_SIZES)
            for steps in range(1, most + 1)
        }
        return min(found.items(), key=lambda item: self.distance(self.gradient_descent(*item)))

    def part(self, rows: slice) -> "Case":
        """Some of the prompts."""
        return Case(self.g[rows], self.parts[rows], self.answers[rows], self.penalty)


def nearest(distance: Callable[[float], float], low: float, high: float) -> float:
    """The argument of least distance, on a logarithmic grid and then between its neighbours."""

    def at_log(x: float) -> float:
        value = distance(math.exp(x))
        return value if math.isfinite(value) else math.inf

    step = math.log(high / low) / (GRID - 1)
    start = min((math.log(low) + i * step for i in range(GRID)), key=at_log)
    found: Any = minimize_scalar(at_log, bounds=(start - step, start + step), method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x)
