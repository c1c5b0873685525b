"""Prompts: a batch of masked-block completion problems and their answers."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts (MATH §1), one token a row.

        tokens = [ A  C ]   context rows (n)        target = D*   [batch, query, y]
                 [ B  0 ]   query rows (n')

    The x columns come first, the y columns last; D is masked to zero.

    Args:
        tokens: the prompts as the model sees them [batch, token, x + y].
        target: the answers D* [batch, query, y]; its shape says which rows are queries and which columns are y.
    """

    tokens: Float[Tensor, "batch token d_model"]
    target: Float[Tensor, "batch query y"]

    def __post_init__(self) -> None:
        batch, n_tokens, width = self.tokens.shape
        if self.target.shape[0] != batch or self.n_query >= n_tokens or self.d_out >= width:
            raise ValueError(
                f"Prompts: tokens {tuple(self.tokens.shape)} and target {tuple(self.target.shape)} do not fit; "
                "they share the batch, and there must be more rows than queries and more columns than y columns"
            )

    @property
    def count(self) -> int:
        return self.tokens.shape[0]

    @property
    def n_query(self) -> int:
        return self.target.shape[1]

    @property
    def d_out(self) -> int:
        return self.target.shape[2]

    @property
    def A(self) -> Float[Tensor, "batch context x"]:
        """The inputs of the context rows."""
        return self.tokens[:, : -self.n_query, : -self.d_out]

    @property
    def B(self) -> Float[Tensor, "batch query x"]:
        """The inputs of the query rows."""
        return self.tokens[:, -self.n_query :, : -self.d_out]

    @property
    def C(self) -> Float[Tensor, "batch context y"]:
        """The labels of the context rows."""
        return self.tokens[:, : -self.n_query, -self.d_out :]

    @property
    def full(self) -> Float[Tensor, "batch token d_model"]:
        """Z_full: the prompts with D* in place of the mask; without noise its rank is that of A."""
        full = self.tokens.clone()
        full[:, -self.n_query :, -self.d_out :] = self.target
        return full

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Prompts":
        """The same prompts in another precision or on another device."""
        return replace(
            self,
            tokens=self.tokens.to(dtype=dtype, device=device),
            target=self.target.to(dtype=dtype, device=device),
        )
