"""Bare matrices of linear attention, from memory or an .npz archive.

Tokens are rows: q = z Q, k = z K, v = z V, and row i moves by Σ_h scale · Σ_k (q_i·k_k) v_k O over the rows k that the
layout lets it see. With `transposed` the matrices are torch's, q = Q z. Without K and O, Q and V are already merged:
Q = W_Q W_Kᵀ and V = W_V W_O, both d_model × d_model.
"""

from typing import Any

import torch
from torch import Tensor

from interp.kernels import SCALES
from interp.layout import BlockLayout
from models.foreign.contents import Contents
from models.foreign.layouts import inputs_and_labels, pairs_layout, to_layout
from models.foreign.series import Given, by_layer, layers_of, named_series
from models.foreign.stacks import LinearLayer, linear_stack, split_heads, split_output, stack_forward
from models.foreign.tokens import TokenForm
from models.foreign.value import Foreign, ForeignError, check_parity

NAME = "matrices"
OPTIONS = ("layout", "heads", "scale", "transposed")
NAMES = ("Q", "K", "V", "O")


def takes(contents: Contents) -> bool:
    """Are the arrays named Q and V, and K and O or not."""
    letters = {name.removeprefix("W_")[:1] for name in contents.arrays}
    return contents.kind == "npz" and {"Q", "V"} <= letters <= set(NAMES)


def load(contents: Contents, layout: str | BlockLayout | None = None, **options: Any) -> Foreign:
    """The model of an .npz archive of Q, K, V, O [layer, …], or of Q_0, K_0, …; options as in `from_matrices`."""
    return _build(contents, named_series(contents.arrays, NAMES, contents.name), layout, **options)


def from_matrices(
    Q: Given,
    K: Given | None,
    V: Given,
    O: Given | None,  # noqa: E741
    layout: str | BlockLayout,
    *,
    heads: int = 1,
    scale: str = "none",
    transposed: bool = False,
) -> Foreign:
    """A linear-attention model from numpy arrays or tensors, one matrix a layer (a list, or a stack [layer, …]).

    Args:
        Q, K, V: of a layer, [d_model, heads · d_head] with heads side by side, or [head, d_model, d_head].
        O: of a layer, [heads · d_head, d_model] or [head, d_head, d_model].
        K, O: both None if Q and V are merged.
        layout: columns, visibility, query rows and read-out.
        heads: how many heads a two-dimensional matrix holds.
        scale: of the scores: "none", "sqrt_d_head" (1/√ of the width of a key) or "n" (1/number of context rows).
        transposed: the last two axes of every matrix are exchanged, as torch's Linear keeps them.

    Raises:
        ForeignError: shapes or types that do not fit.
        ValueError: the layout does not fit.
    """
    given = {"Q": Q, "K": K, "V": V, "O": O}
    series = {key: W for name, W in given.items() if W is not None for key, W in by_layer(name, W).items()}
    return _build(Contents.in_memory(series), series, layout, heads=heads, scale=scale, transposed=transposed)


def _build(
    contents: Contents,
    series: dict[str, Any],
    layout: str | BlockLayout | None,
    heads: int = 1,
    scale: str = "none",
    transposed: bool = False,
) -> Foreign:
    names = tuple(name for name in NAMES if any(key.startswith(name) for key in series))
    if ("K" in names) != ("O" in names):
        raise ForeignError(f"{contents.name} has {', '.join(names)}; give K and O, or neither if Q and V are merged")
    if scale not in SCALES:
        raise ForeignError(f"unknown scale {scale!r} of the scores; known: {', '.join(SCALES)}")
    layers, notes = layers_of(series, names, contents.name)
    stack = [_layer(parts, heads, scale, transposed) for parts in layers]
    kernel_scale = "n" if scale == "n" else "none"
    chosen = pairs_layout(stack[0].Q.shape[1]) if layout is None else to_layout(layout)
    model = linear_stack(stack, chosen, kernel_scale)
    reference = "numpy from the matrices"
    parity = check_parity(model, lambda z: stack_forward(stack, chosen, z, kernel_scale), reference, stream=True)
    options = {"layout": chosen.to_dict(), "heads": heads, "scale": scale, "transposed": transposed}
    assumed = (f"linear attention, scores × {SCALES[scale]}, residual added", *_default(layout is None, chosen))
    form = TokenForm() if inputs_and_labels(chosen) else None
    return Foreign(model, form, contents.provenance(NAME, **options), (*assumed, *notes), parity)


def _default(applies: bool, layout: BlockLayout) -> tuple[str, ...]:
    if not applies:
        return ()
    return (f"columns x ({layout.widths['x']}) and y (1), answer y, context rows seen by all; --layout says another",)


def _layer(parts: dict[str, Tensor], heads: int, scale: str, transposed: bool) -> LinearLayer:
    if any(W.ndim not in (2, 3) for W in parts.values()):
        shapes = {name: list(W.shape) for name, W in parts.items()}
        raise ForeignError(f"the matrices of a layer have the shapes {shapes}; they are two- or three-dimensional")
    turned = {name: W.mT if transposed else W for name, W in parts.items()}
    merged = "K" not in turned
    columns = {
        name: W if W.ndim == 3 else split_heads(W, 1 if merged else heads) for name, W in turned.items() if name != "O"
    }
    Q, V = columns["Q"], columns["V"]
    eye = torch.eye(Q.shape[1], dtype=Q.dtype).expand(len(Q), -1, -1)
    K = eye if merged else columns["K"]
    O = eye if merged else turned["O"]  # noqa: E741
    O = O if O.ndim == 3 else split_output(O, heads)  # noqa: E741
    _check(Q, K, V, O)
    return LinearLayer(Q * Q.shape[-1] ** -0.5 if scale == "sqrt_d_head" else Q, K, V, O)


def _check(Q: Tensor, K: Tensor, V: Tensor, O: Tensor) -> None:  # noqa: E741
    heads, d_model = Q.shape[:2]
    fits = K.shape == Q.shape and V.shape[:2] == Q.shape[:2] and O.shape == (heads, V.shape[2], d_model)
    if not fits:
        shapes = {name: list(W.shape) for name, W in zip(NAMES, (Q, K, V, O), strict=True)}
        raise ForeignError(
            f"the matrices of a layer do not fit together: {shapes} as [head, …]; they act on rows from the right, or "
            "say transposed"
        )
