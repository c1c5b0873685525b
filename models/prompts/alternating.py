"""Prompts whose inputs and labels sit in tokens of their own: x_1, y_1, x_2, y_2, …, x_q."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts.value import Prompts


@dataclass(frozen=True)
class AlternatingPrompts(Prompts):
    """A batch of prompts with two tokens a context row, (x, 0) and then (0, y), and one query token (x_q, 0)."""

    @property
    def A(self) -> Float[Tensor, "batch context x"]:
        """The inputs of the context points."""
        return self.tokens[:, : -self.n_query : 2, : -self.d_out]

    @property
    def C(self) -> Float[Tensor, "batch context y"]:
        """The labels of the context points."""
        return self.tokens[:, 1 : -self.n_query : 2, -self.d_out :]

    @property
    def full(self) -> Float[Tensor, "batch token d_model"]:
        """Not defined: no row holds an input and its label."""
        raise ValueError("alternating prompts have no completed matrix: inputs and labels sit in tokens of their own")


@dataclass(frozen=True)
class Sequences(AlternatingPrompts):
    """Alternating prompts with f at every input token, each a query of its own past: what a causal model trains on.

    Args:
        tokens: as in `AlternatingPrompts`.
        target: f at the context inputs and at the query [batch, n + 1, y].
    """

    @property
    def n_query(self) -> int:
        return 1


def interleaved(prompts: Prompts) -> AlternatingPrompts:
    """The same problems, inputs and labels in tokens of their own.

    Raises:
        ValueError: several queries: under a causal mask the later ones would see the earlier.
    """
    if prompts.n_query != 1:
        raise ValueError(f"alternating prompts have one query, got {prompts.n_query}")
    inputs = torch.cat([prompts.A, torch.zeros_like(prompts.C)], dim=-1)
    labels = torch.cat([torch.zeros_like(prompts.A), prompts.C], dim=-1)
    pairs = torch.stack([inputs, labels], dim=2).flatten(1, 2)
    return AlternatingPrompts(torch.cat([pairs, prompts.tokens[:, -1:]], dim=1), prompts.target)
