"""In-context linear regression as the literature draws it: independent inputs, one label column, a random weight."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts.completion import RANDOM, SPANNING, assemble, check_rows, query_rows
from models.prompts.family import Draw, PromptFamily, check_at_least_one, check_noise, check_positive, scaled_edges
from models.prompts.random import gaussian, white_noise


@dataclass(frozen=True)
class LinearRegression(PromptFamily):
    """Prompts A, C = A w + noise, B, and D* = B w, with independent, identically distributed entries of A and B.

    D* is the label without noise. With n ≥ d and no noise that is B A⁺ C; with fewer context rows the prompt does not
    determine it.

    Args:
        n, d: context rows and x columns.        n_query: query rows.
        scale: multiplies the whole prompt.      noise: standard deviation of Gaussian noise on the labels C.

    Raises:
        ValueError: a size below 1, a scale that is not positive, a negative noise.
    """

    n: int
    d: int
    n_query: int = 1
    scale: float = 1.0
    noise: float = 0.0
    rows: str = RANDOM

    def __post_init__(self) -> None:
        check_at_least_one(self, {name: getattr(self, name) for name in ("n", "d", "n_query")})
        check_positive(self, {"scale": self.scale})
        check_noise(self, self.noise)
        check_rows(self, self.rows, self.n_query, self.d)

    @property
    @abstractmethod
    def input_deviation(self) -> float:
        """Standard deviation of an entry of A and B, before `scale`."""

    @property
    @abstractmethod
    def weight_deviation(self) -> float:
        """Standard deviation of an entry of w."""

    @abstractmethod
    def unit_inputs(self, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "..."]:
        """Independent entries of mean 0 and variance 1."""

    @property
    def widths(self) -> tuple[int, int]:
        return self.d, 1

    @property
    def queries(self) -> int:
        return self.n_query

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        A = self.input_deviation * self.unit_inputs((count, self.n, self.d), generator)
        queries = query_rows(self.rows, self.unit_inputs((count, self.n_query, self.d), generator))
        B = self.input_deviation * queries
        weights = self.weight_deviation * gaussian((count, self.d, 1), generator)
        tokens = self.scale * assemble(A, B, A @ weights)
        tokens[:, : self.n, self.d :] += white_noise(self.noise, (count, self.n, 1), generator)
        return tokens, self.scale * B @ weights

    def edges(self) -> dict[str, PromptFamily]:
        return {**scaled_edges(self), f"n = {2 * self.n}": replace(self, n=2 * self.n)}

    def spanning(self) -> "LinearRegression":
        return replace(self, rows=SPANNING, n_query=self.d)


@dataclass(frozen=True)
class UniformRegression(LinearRegression):
    """The setting of arXiv 2212.07677 (von Oswald et al.): entries of A and B uniform in (-½, ½), w ~ N(0, I).

    See `LinearRegression`. There n = d = 10, one query, no noise, and the loss is half the squared error.
    """

    @property
    def input_deviation(self) -> float:
        return 1 / math.sqrt(12)

    @property
    def weight_deviation(self) -> float:
        return 1.0

    def unit_inputs(self, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "..."]:
        return math.sqrt(12) * (torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5)


@dataclass(frozen=True)
class GaussianRegression(LinearRegression):
    """Entries of A and B standard normal, w ~ N(0, I/d), so that a label has variance 1 (see `LinearRegression`).

    With noise σ the Bayes prediction is ridge regression with the penalty σ² d (at scale 1).
    """

    @property
    def input_deviation(self) -> float:
        return 1.0

    @property
    def weight_deviation(self) -> float:
        return 1 / math.sqrt(self.d)

    def unit_inputs(self, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "..."]:
        return gaussian(shape, generator)


@dataclass(frozen=True)
class StandardRegression(LinearRegression):
    """The setting of arXiv 2208.01066 (Garg et al.): entries of A, B and w all standard normal, so y has variance d."""

    @property
    def input_deviation(self) -> float:
        return 1.0

    @property
    def weight_deviation(self) -> float:
        return 1.0

    def unit_inputs(self, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "..."]:
        return gaussian(shape, generator)
