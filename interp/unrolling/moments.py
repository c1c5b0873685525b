"""Prompts at the door, and the second moments that their rows see."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.visibility import machine_of


def check_prompts(prompts: Any, layout: BlockLayout) -> Float[Tensor, "batch token d_model"]:
    """The tokens of prompts in float64.

    Raises:
        ValueError: they are no tensor [batch, token, d_model], there is none, the width is another, one is not finite.
    """
    tokens = getattr(prompts, "tokens", prompts)
    if isinstance(tokens, Tensor) and not tokens.is_floating_point():
        raise ValueError(
            "the prompts are numbers of a vocabulary, and this analysis is of regression prompts, real-valued rows "
            f"[batch, token, {layout.d_model}]; give those, to interp.protocol.Continuous where the model embeds words"
        )
    if not isinstance(tokens, Tensor) or tokens.ndim != 3 or not len(tokens):
        given = f"a tensor {list(tokens.shape)}" if isinstance(tokens, Tensor) else f"a {type(tokens).__name__}"
        raise ValueError(
            f"prompts must be a tensor [batch, token, {layout.d_model}] of at least one prompt, got {given}"
        )
    if tokens.shape[-1] != layout.d_model:
        raise ValueError(f"the layout has {layout.d_model} columns {layout.widths}, the prompts {tokens.shape[-1]}")
    layout.n_context(tokens.shape[1])
    if not tokens.isfinite().all():
        raise ValueError("the prompts hold NaN or inf; leave those prompts out")
    return tokens.double()


def second_moments(
    z: Float[Tensor, "batch token D"], layout: BlockLayout, rule: str, role: str
) -> Float[Tensor, "batch row D D"]:
    """S of each row of a role: Σ zᵀz over the rows it sees; one S (row axis 1) where all rows of the role share it.

    Under "machine k" the context rows of other machines see nothing: their S is 0.
    """
    n = layout.n_context(z.shape[1])
    context, own = z[:, :n], z[:, :n] if role == "context" else z[:, n:]
    if (machine := machine_of(rule)) is not None:
        return _one_machine(context, machine, n // layout.machines, role)
    if rule == "all":
        return (z.mT @ z)[:, None]
    if rule == "causal":
        sums = torch.einsum("bta,btc->btac", z, z).cumsum(1)
        return sums[:, :n] if role == "context" else sums[:, n:]
    if rule == "machine":
        per_machine = context.unflatten(1, (layout.machines, -1))
        return (per_machine.mT @ per_machine).repeat_interleave(n // layout.machines, dim=1)
    S = (context.mT @ context)[:, None]
    if rule == "context_and_self" and role == "query":
        S = S + torch.einsum("bta,btc->btac", own, own)
    return S


def _one_machine(
    context: Float[Tensor, "batch n D"], machine: int, size: int, role: str
) -> Float[Tensor, "batch row D D"]:
    """S of one machine, for the queries; for context rows, S on that machine's rows and 0 on the others."""
    served = slice(machine * size, (machine + 1) * size)
    S = (context[:, served].mT @ context[:, served])[:, None]
    if role == "query":
        return S
    out = S.new_zeros(*context.shape[:2], *S.shape[2:])
    out[:, served] = S
    return out
