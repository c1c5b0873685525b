"""Gradient descent on prompts whose inputs and labels sit in tokens of their own.

What of Akyürek et al. (arXiv 2211.15661) linear attention expresses, and what not:

- their `mov`, by which a label token fetches its input: yes, in one layer and exactly, with one-hot codes of the pairs,
  so the width grows with n. (Theirs is softmax attention in the limit of infinite scores.)
- their `mul` and `aff`, by GELU layers up to an approximation error: products come with the attention itself, exactly.
- gradient descent (their theorem 1 makes one step on one example): here on all examples, one step a layer.
- their `div`, and with it the Sherman–Morrison updates of ridge regression (theorem 2): no. A linear-attention model is
  a polynomial of its tokens, and a quotient is none.
- their causal mask: under it a label token sees the earlier pairs only, and the same weights compute something else.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.constructions.construction import Construction, PromptShape, check_positive, join
from models.constructions.weights import from_heads, place
from models.prompts.value import Prompts


def alternating_gradient_descent(shape: PromptShape, gamma: Sequence[float]) -> Construction:
    """w ← w − γ_l (AᵀA w − AᵀC) on tokens x_1, y_1, x_2, y_2, …, x_q; one layer more than step sizes.

    Blocks: x | y | memory (rotates with x) | input_code | label_code (one-hot codes of the pair, in the input's and in
    the label's token; they turn together). Layer 0: z_label_code S[input_code, x] → memory. Then, a layer a step:
    z_memory S[memory, y] → y and z_x S[memory, y] → y with −γ_l. Input tokens have no memory, so nothing sees what is
    written to their y.

    Source: Akyürek et al., arXiv 2211.15661, their prompt and their `mov`; see above for what differs.
    """
    check_positive("alternating_gradient_descent", gamma=list(gamma))
    if shape.n is None or shape.scale != "none":
        raise ValueError("alternating_gradient_descent: state n, the number of pairs, and take the scale 'none'")
    extra = {"memory": shape.d, "input_code": shape.n, "label_code": shape.n}
    layout = shape.layout(extra, symmetry={"memory": "x", "label_code": "input_code"})
    fetch = place(layout, {("label_code", "input_code"): 1.0}), place(layout, {("x", "memory"): 1.0})
    query = place(layout, {("memory", "memory"): 1.0, ("x", "memory"): 1.0})
    steps = [[(query, place(layout, {("y", "y"): -step}))] for step in gamma]
    settings = {"gamma": list(gamma), "n": shape.n, **shape.settings()}
    model = from_heads([[fetch], *steps], layout)
    family = "gradient descent" if len(set(gamma)) == 1 else "scheduled GD"
    return Construction(family, model, settings, embed_alternating)


def embed_alternating(prompts: Prompts, layout: BlockLayout) -> Float[Tensor, "batch token d_model"]:
    """Two tokens a context row, its x and then its y, with the codes of the pair; then the query rows."""
    x, y = prompts.tokens[..., : -prompts.d_out], prompts.tokens[..., -prompts.d_out :]
    n = x.shape[-2] - prompts.n_query
    code = torch.eye(n).to(x).expand(prompts.count, -1, -1)
    parts = {
        "x": _alternate(x, prompts.n_query, first=True),
        "y": _alternate(y, prompts.n_query, first=False),
        "memory": _alternate(torch.zeros_like(x), prompts.n_query, first=True),
        "input_code": _alternate(_with_blank_queries(code, prompts.n_query), prompts.n_query, first=True),
        "label_code": _alternate(_with_blank_queries(code, prompts.n_query), prompts.n_query, first=False),
    }
    return join(parts, prompts, layout)


def _alternate(rows: Tensor, n_query: int, first: bool) -> Tensor:
    """Context rows in the first or the second token of their pair, the other token blank; query rows as they are."""
    context, query = rows[:, :-n_query], rows[:, -n_query:]
    pair = (context, torch.zeros_like(context))
    return torch.cat([torch.stack(pair if first else pair[::-1], dim=2).flatten(1, 2), query], dim=1)


def _with_blank_queries(rows: Tensor, n_query: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(rows.shape[0], n_query, rows.shape[2])], dim=1)
