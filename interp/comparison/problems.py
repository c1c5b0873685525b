"""Problems: prompts as a model takes them, and the regression problems that they pose; fresh ones by seed."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = 2  # prompts of a group
FAR = 10_000  # between the seeds of test prompts and those of training prompts


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch of regression problems and their tokens.

    Args:
        tokens: as the model takes them [batch, token, d_in].
        x, y: context points [batch, n, x] and labels [batch, n, out].
        queries: inputs [batch, query, x] asked for in the last rows of the tokens.
        target: f at the queries [batch, query, out].
    """

    tokens: Tensor
    x: Tensor
    y: Tensor
    queries: Tensor
    target: Tensor

    def __post_init__(self) -> None:
        shapes = {field.name: list(getattr(self, field.name).shape) for field in fields(self)}
        batch, n, d, out = *self.x.shape[:3], self.y.shape[-1]
        wanted = {"x": [batch, n, d], "y": [batch, n, out], "queries": [batch, self.queries.shape[1], d]}
        wanted["target"] = [*wanted["queries"][:2], out]
        wrong = [name for name, shape in wanted.items() if shapes[name] != shape]
        if wrong or self.tokens.ndim != 3 or len(self.tokens) != batch:
            raise ValueError(
                f"compare: the parts of the prompts do not fit each other: {shapes}; give tokens [batch, token, d_in], "
                "x [batch, n, x], y [batch, n, out], queries [batch, query, x], target [batch, query, out]"
            )
        for field in fields(self):
            if not getattr(self, field.name).isfinite().all():
                raise ValueError(f"compare: the {field.name} of the prompts hold NaN or inf; leave those prompts out")

    @classmethod
    def of(cls, prompts: Any, tokens: Tensor | None = None) -> "Problems":
        """From prompts with tokens, A, C, B and target, in float64; with other tokens where the model takes others."""
        if isinstance(prompts, cls):
            return prompts
        missing = [name for name in ("tokens", "A", "B", "C", "target") if not hasattr(prompts, name)]
        if missing:
            raise ValueError(
                f"compare: the prompts have no {missing[0]}; give values with tokens, A, B, C, target, or Problems"
            )
        given = prompts.tokens if tokens is None else tokens
        return cls(*(part.double() for part in (given, prompts.A, prompts.C, prompts.B, prompts.target)))

    @property
    def count(self) -> int:
        return len(self.tokens)

    def some(self, chosen: slice) -> "Problems":
        """Some of the prompts."""
        return Problems(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True)
class Draws:
    """Groups of prompts by seed: some to fit the probes on, others to compare on.

    Args:
        source: prompts, or a function (count, seed) that draws them.
        train, test: prompts of a group; of given prompts half train all probes and the rest is cut into the groups.
        groups: how many; the spread of every number is over them.

    Raises:
        ValueError: too few prompts to have two in every group.
    """

    source: Any | Callable[[int, int], Any]
    train: int = 512
    test: int = 128
    groups: int = 10

    def __post_init__(self) -> None:
        for name, least in (("train", LEAST), ("test", LEAST), ("groups", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"compare: {name}={getattr(self, name)} must be at least {least}")
        if not self._sampled and self._given.count < 2 * LEAST * self.groups:
            raise ValueError(
                f"compare: {self._given.count} prompts are too few for probes and {self.groups} groups of {LEAST}; "
                f"give {2 * LEAST * self.groups} or more, or a function (count, seed) that draws them"
            )

    @property
    def _sampled(self) -> bool:
        return callable(self.source) and not hasattr(self.source, "tokens")

    @property
    def _given(self) -> Problems:
        return Problems.of(self.source)

    def group(self, index: int) -> tuple[Problems, Problems]:
        """Training and test prompts of a group."""
        if self._sampled:
            train, test = self.source(self.train, FAR + index), self.source(self.test, index)
            return Problems.of(train), Problems.of(test)
        given, half = self._given, self._given.count // 2
        chosen = torch.arange(half, given.count).tensor_split(self.groups)[index]
        return given.some(slice(0, half)), given.some(slice(int(chosen[0]), int(chosen[-1]) + 1))


def check_lam(lam: float) -> None:
    """λ of a kernel system is positive."""
    if not 0 < lam < float("inf"):
        raise ValueError(f"compare: lam={lam} must be positive and finite: it is the λ of (K + λI) α = y")


def flat(values: Float[Tensor, "row batch query out"]) -> Float[Tensor, "row entry"]:
    """All prompts, queries and outputs of a row side by side."""
    return values.flatten(1)
