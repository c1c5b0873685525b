"""Merged weights of linear-transformer code: one P (value) and one Q (key-query) a layer and head.

The paper (arXiv 2306.00297) writes tokens as columns of Z:  Z + (1/n) P Z M (Zᵀ Q Z),  M = diag(1, …, 1, 0), so token j
gets (1/n) Σ_i P z_i (z_iᵀ Q z_j) over the context tokens i. Its code writes tokens as rows and computes
(1/n) (Z Q Zᵀ) M (Z Pᵀ), so token j gets (1/n) Σ_i (z_jᵀ Q z_i) P z_i: Q is transposed, and nothing else. Here
`convention` says which; in both the model answers -y on the query row. Matrices of the inputs alone (d × d) are
completed as that code does: P with a 1 for y, Q with a 0.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.layout import BlockLayout
from models.foreign.arrays import expect_shape
from models.foreign.contents import Contents
from models.foreign.layouts import inputs_and_labels, pairs_layout, to_layout
from models.foreign.series import Given, by_layer, layers_of, named_series
from models.foreign.stacks import LinearLayer, linear_stack
from models.foreign.tokens import TokenForm
from models.foreign.value import Array, Foreign, ForeignError, check_parity

NAME = "merged"
OPTIONS = ("layout", "convention", "inputs_only")
CONVENTIONS = ("code", "paper")
STACKED = "allparam"


def takes(contents: Contents) -> bool:
    """Are the arrays named P and Q, or is there one allparam."""
    letters = {name.removeprefix("W_")[:1] for name in contents.arrays}
    return STACKED in contents.arrays or (contents.kind == "npz" and letters == {"P", "Q"})


def load(contents: Contents, layout: str | BlockLayout | None = None, **options: Any) -> Foreign:
    """The model of an archive with P and Q, or of a state dict whose allparam is [layer, head, 2, d, d] (P, then Q)."""
    if STACKED in contents.arrays:
        stacked = contents.arrays[STACKED]
        width = getattr(stacked, "shape", ())[-1:] or (None,)
        expect_shape(contents.arrays, STACKED, None, None, 2, *2 * width)
        given = by_layer("P", stacked[:, :, 0]) | by_layer("Q", stacked[:, :, 1])
        return _build(contents, given, layout, **{"inputs_only": True, **options})
    return _build(contents, named_series(contents.arrays, ("P", "Q"), contents.name), layout, **options)


def from_merged(
    P: Given, Q: Given, layout: str | BlockLayout, *, convention: str = "code", inputs_only: bool = False
) -> Foreign:
    """A linear-attention model from P and Q: of a layer [d, d], or [head, d, d]; a list or a stack of them.

    Args:
        convention: "code" or "paper", which differ by a transpose of Q.
        inputs_only: the matrices are those of the inputs alone; y is added to them.

    Raises:
        ForeignError: shapes or types that do not fit, an unknown convention.
        ValueError: the layout does not fit.
    """
    series = by_layer("P", P) | by_layer("Q", Q)
    return _build(Contents.in_memory(series), series, layout, convention, inputs_only)


def _build(
    contents: Contents,
    series: dict[str, Any],
    layout: str | BlockLayout | None,
    convention: str = "code",
    inputs_only: bool = False,
) -> Foreign:
    if convention not in CONVENTIONS:
        raise ForeignError(f"unknown convention {convention!r}; known: {', '.join(CONVENTIONS)}")
    layers, notes = layers_of(series, ("P", "Q"), contents.name)
    pairs = [_full(parts, inputs_only) for parts in layers]
    stack = [_layer(P, Q, convention) for P, Q in pairs]
    chosen = pairs_layout(stack[0].Q.shape[1], sign=-1.0) if layout is None else to_layout(layout, sign=-1.0)
    model = linear_stack(stack, chosen, scale="n")
    parity = check_parity(
        model, lambda z: _forward(pairs, convention, z, chosen), f"the {convention}'s formula", stream=True
    )
    options = {"layout": chosen.to_dict(), "convention": convention, "inputs_only": inputs_only}
    assumed = [
        f"scores / n over the context rows, the convention of the {convention}, and the answer {chosen.sign:g} · y"
    ]
    assumed += ["matrices of the inputs alone, completed with a 1 for y in P and a 0 in Q"] if inputs_only else []
    form = TokenForm() if inputs_and_labels(chosen) else None
    return Foreign(model, form, contents.provenance(NAME, **options), (*assumed, *notes), parity)


def _full(parts: dict[str, Tensor], inputs_only: bool) -> tuple[Tensor, Tensor]:
    """P and Q as [head, D, D]."""
    P, Q = (parts[name] if parts[name].ndim == 3 else parts[name][None] for name in "PQ")
    if P.ndim != 3 or P.shape != Q.shape or P.shape[1] != P.shape[2]:
        raise ForeignError(f"P and Q of a layer have the shapes {list(P.shape)} and {list(Q.shape)}; both are square")
    if inputs_only:
        P, Q = (torch.nn.functional.pad(W, (0, 1, 0, 1)) for W in (P, Q))
        P[:, -1, -1] = 1
    return P, Q


def _layer(P: Tensor, Q: Tensor, convention: str) -> LinearLayer:
    eye = torch.eye(P.shape[-1], dtype=P.dtype).expand_as(P)
    return LinearLayer(Q if convention == "code" else Q.mT, eye, P.mT, eye)


def _forward(pairs: list[tuple[Tensor, Tensor]], convention: str, tokens: Array, layout: BlockLayout) -> Array:
    """The formula as written, with tokens as columns for the paper and as rows for the code."""
    n = layout.n_context(tokens.shape[1])
    M = layout.allowed(tokens.shape[1], 1)[0, -1].double().diag().numpy()
    for heads in pairs:
        P, Q = (W.numpy() for W in heads)
        Z = tokens[:, None] if convention == "code" else tokens.transpose(0, 2, 1)[:, None]
        T = Z.transpose(0, 1, 3, 2)
        moved = (Z @ Q @ T) @ M @ (Z @ P.transpose(0, 2, 1)) if convention == "code" else P @ Z @ M @ (T @ Q @ Z)
        step = moved.sum(1) / n
        tokens = tokens + (step if convention == "code" else np.swapaxes(step, 1, 2))
    return tokens
