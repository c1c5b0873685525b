"""What all prompt families share: seeded sampling, a layout, plain values for JSON, checks at the door."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.prompts.value import Prompts

Draw = tuple[Float[Tensor, "batch token d_model"], Float[Tensor, "batch query y"]]


@dataclass(frozen=True)
class PromptFamily(ABC):
    """A distribution of prompts; the subclasses are frozen dataclasses of its settings.

    `scale` multiplies every entry of the prompt, the answer included.
    """

    @property
    @abstractmethod
    def widths(self) -> tuple[int, int]:
        """How many x columns and how many y columns a prompt has."""

    @property
    @abstractmethod
    def queries(self) -> int:
        """How many query rows a prompt has."""

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Draw:
        """Tokens with D masked, and D*, in float64 on the CPU."""

    @abstractmethod
    def edges(self) -> dict[str, "PromptFamily"]:
        """The neighbourhood in which a rule trained on this family is tried, by label."""

    def sample(
        self, count: int, *, seed: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> Prompts:
        """`count` prompts. The same seed gives the same prompts on every device and, up to rounding, in every dtype."""
        if count < 1:
            raise ValueError(f"{type(self).__name__}.sample: count={count} must be at least 1")
        tokens, target = self.draw(count, torch.Generator().manual_seed(seed))
        return Prompts(tokens, target).to(dtype=dtype, device=device)

    def layout(self, sign: float = -1.0) -> BlockLayout:
        """x columns, then y columns; the answer is sign * y on the query rows."""
        x, y = self.widths
        return BlockLayout.standard(x=x, y=y, n_query=self.queries, sign=float(sign))

    def spanning(self) -> "PromptFamily | None":
        """This family with each prompt's queries replaced by a fixed set of rows that stands for their distribution.

        The prediction of linear attention is linear in the query row, so the squared error summed over these rows is
        the exact expectation over one random query. None where the queries are no independent draw.
        """
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `family_from_dict` is the inverse."""
        return {"family": type(self).__name__, **asdict(self)}


def scaled_edges(family: Any) -> dict[str, PromptFamily]:
    """The two edges that every family has: smaller inputs and larger ones."""
    return {f"inputs × {factor}": replace(family, scale=family.scale * factor) for factor in (0.5, 1.2)}


def check_at_least_one(owner: object, names: Mapping[str, int]) -> None:
    """Raise if a size is below 1."""
    for name, value in names.items():
        if value < 1:
            raise ValueError(f"{type(owner).__name__}: {name}={value} must be at least 1")


def check_positive(owner: object, names: Mapping[str, float]) -> None:
    """Raise if a setting is not a positive, finite number."""
    for name, value in names.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"{type(owner).__name__}: {name}={value} must be a positive, finite number")


def check_noise(owner: object, noise: float) -> None:
    """Raise if the standard deviation of the noise is negative or not finite."""
    if not 0 <= noise < float("inf"):
        raise ValueError(f"{type(owner).__name__}: noise={noise} is a standard deviation and must be 0 or more")


def check_rank(owner: object, rank: int, n: int, d: int) -> None:
    """Raise if A [n, d] cannot have this rank."""
    if not 1 <= rank <= min(n, d):
        raise ValueError(f"{type(owner).__name__}: rank={rank} must lie between 1 and min(n, d) = {min(n, d)}")


def check_spectrum(owner: object, kappa: float, rank: int) -> None:
    """Raise if no spectrum of `rank` values has the condition number kappa."""
    if not 1 <= kappa < float("inf"):
        raise ValueError(f"{type(owner).__name__}: kappa={kappa} is a condition number and must be at least 1")
    if rank == 1 and kappa > 1:
        raise ValueError(f"{type(owner).__name__}: one singular value has kappa=1, not {kappa}; raise the rank")
