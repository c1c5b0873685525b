"""What a construction is: a model written down, its family, its settings, and how prompts become its tokens."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.prompts.value import Prompts
from models.transformer import HookedTransformer


def embed(prompts: Prompts, layout: BlockLayout) -> Float[Tensor, "batch token d_model"]:
    """Prompts as tokens of a layout, block by block, by the names of the blocks.

    x and y hold the prompt, constant is 1 and velocity 0 in every row, label is a copy of y (0 in query rows, as D is
    masked). The tokens are the block coordinates times the layout's basis, so a layout that was rotated or rescaled
    takes the same call.

    Raises:
        ValueError: the layout has a block of another name, or other widths or query rows than the prompts.
    """
    x, y = prompts.tokens[..., : -prompts.d_out], prompts.tokens[..., -prompts.d_out :]
    ones = torch.ones_like(y[..., :1])
    return join({"x": x, "y": y, "constant": ones, "velocity": torch.zeros_like(y), "label": y}, prompts, layout)


def join(parts: Mapping[str, Tensor], prompts: Prompts, layout: BlockLayout) -> Float[Tensor, "batch token d_model"]:
    """The blocks of a layout, side by side in its basis."""
    if unknown := sorted(set(layout.columns) - set(parts)):
        raise ValueError(f"embed: nothing is known to fill the block {unknown[0]!r}; known blocks: {', '.join(parts)}")
    widths = {name: parts[name].shape[-1] for name in layout.columns}
    if widths != layout.widths or prompts.n_query != layout.n_query:
        raise ValueError(
            f"embed: the prompts fill blocks of the widths {widths} and have {prompts.n_query} query rows, "
            f"the layout asks for {layout.widths} and {layout.n_query}"
        )
    rows = torch.cat([parts[name] for name in layout.columns], dim=-1)
    return rows @ layout.basis.T.to(rows)


@dataclass(frozen=True)
class Construction:
    """A known algorithm as weights.

    Args:
        family: its name in the table of families (MATH §9), or "unknown".
        model: the weights, in float64.
        settings: plain numbers, lists and names that determine the algorithm.
        embed: how prompts become tokens of the model's layout.
    """

    family: str
    model: HookedTransformer
    settings: dict[str, Any]
    embed: Callable[[Prompts, BlockLayout], Tensor] = field(default=embed, repr=False)

    def tokens(self, prompts: Prompts) -> Float[Tensor, "batch token d_model"]:
        """The prompts as the model takes them."""
        return self.embed(prompts, self.model.layout)

    def predict(self, prompts: Prompts) -> Float[Tensor, "batch query y"]:
        """The model's answers."""
        return self.model.predict(self.tokens(prompts))


@dataclass(frozen=True)
class PromptShape:
    """The prompts a construction is made for.

    With scale "n" the layer divides by the number of context rows, so that AᵀA in every formula reads AᵀA/n. A layer
    is homogeneous cubic: a linear term c·z is written c·z·S[constant, constant], and S[constant, constant] = n. So it
    holds for every n with scale "n", and otherwise only for the `n` stated here.
    """

    d: int
    d_out: int = 1
    n_query: int = 1
    scale: str = "none"
    n: int | None = None

    def layout(self, extra: Mapping[str, int] | None = None, **options: Any) -> BlockLayout:
        """Blocks x | y | extra, read out with the sign −1 of the literature (MATH §4)."""
        return BlockLayout.standard(x=self.d, y=self.d_out, **(extra or {}), n_query=self.n_query, sign=-1, **options)

    def linear(self, coefficient: float) -> float:
        """The weight at S[constant, constant] (or S[constant, y] of a mean) that acts as `coefficient`."""
        if self.scale == "n":
            return coefficient
        if self.n is None:
            raise ValueError("a linear term depends on the number of context rows: state n, or take the scale 'n'")
        return coefficient / self.n

    def settings(self, needs_n: bool = False) -> dict[str, Any]:
        """Scale, and n where the weights depend on it."""
        return {"scale": self.scale, **({"n": self.n} if needs_n and self.scale == "none" else {})}


def check_positive(who: str, **settings: Any) -> None:
    """Raise unless every setting, a number or a list of numbers, is positive and finite."""
    for name, values in settings.items():
        numbers = values if isinstance(values, list | tuple) else [values]
        if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
            raise ValueError(f"{who}: {name} must be positive and finite, got {values}")


def check_negative(who: str, **settings: Any) -> None:
    """Raise unless every setting, a number or a list of numbers, is negative and finite."""
    for name, values in settings.items():
        numbers = values if isinstance(values, list | tuple) else [values]
        if not numbers or not all(math.isfinite(value) and value < 0 for value in numbers):
            raise ValueError(f"{who}: {name} must be negative and finite (MATH §4: η < 0 < γ), got {values}")
