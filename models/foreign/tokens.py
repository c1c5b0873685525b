"""How prompts become the tokens of a foreign model."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts import Prompts

PAIRS, CODED, ALTERNATING = "pairs", "pairs with a positional code", "alternating, label in the first channel"


@dataclass(frozen=True)
class TokenForm:
    """Prompts [[A, C], [B, 0]] as tokens.

    - "pairs": one token a row, (x, y), and (x_q, 0) for the query.
    - "pairs with a positional code": the same, and `code` more columns, sin(k/10000^(2i/code)) and
      cos(k/10000^(2i/code)) for row k, counted from 0 (the concatenated code of arXiv 2212.07677).
    - "alternating, label in the first channel": x_1, (y_1, 0, …, 0), x_2, …, x_q (arXiv 2208.01066).

    Args:
        name: one of these.
        code: how many columns the positional code has, even; 0 without one.
    """

    name: str = PAIRS
    code: int = 0

    def __post_init__(self) -> None:
        if self.name not in FORMS:
            raise ValueError(f"TokenForm: unknown form {self.name!r}; known: {', '.join(FORMS)}")
        if self.code % 2 or (self.code > 0) != (self.name == CODED):
            raise ValueError(f"TokenForm: {self.name!r} with {self.code} columns of code; they come in pairs")

    def __call__(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The tokens [batch, token, d_in]."""
        return FORMS[self.name](prompts, self.code)

    def width(self, x: int, y: int) -> int:
        """The columns of the tokens for prompts of x and y columns."""
        return x if self.name == ALTERNATING else x + y + self.code

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TokenForm":
        """The inverse of `to_dict`."""
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"TokenForm: {dict(values)} does not describe how tokens are made") from error


def positional_code(n_tokens: int, width: int) -> Float[Tensor, "token width"]:
    """Sines in the even columns and cosines in the odd ones, row k for position k."""
    rate = torch.exp(-math.log(10_000) / width * torch.arange(0, width, 2, dtype=torch.float64))
    angle = torch.arange(n_tokens, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def _pairs(prompts: Prompts, code: int) -> Tensor:
    return prompts.tokens


def _coded(prompts: Prompts, code: int) -> Tensor:
    batch, n_tokens, _ = prompts.tokens.shape
    columns = positional_code(n_tokens, code).to(prompts.tokens).expand(batch, -1, -1)
    return torch.cat([prompts.tokens, columns], dim=-1)


def _alternating(prompts: Prompts, code: int) -> Tensor:
    if prompts.n_query != 1 or prompts.d_out != 1:
        raise ValueError(
            f"alternating tokens have one query and one label, and these prompts {prompts.n_query} and {prompts.d_out}"
        )
    labels = torch.nn.functional.pad(prompts.C, (0, prompts.A.shape[-1] - 1))
    return torch.cat([torch.stack([prompts.A, labels], dim=2).flatten(1, 2), prompts.B], dim=1)


FORMS: dict[str, Callable[[Prompts, int], Tensor]] = {PAIRS: _pairs, CODED: _coded, ALTERNATING: _alternating}
