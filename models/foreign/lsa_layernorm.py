"""Linear self-attention with two layer norms a block, as a public replication of one-step gradient descent writes it.

    z ← norm2(z + 0.1 · W_o Σ_{k ≤ i} (W_q norm1(z_i) · W_k norm1(z_k))/√hidden · W_v norm1(z_k))

for every row i, and then `pred_head` on the last row. Tokens are (x, y), the query (x_q, 0); matrices are torch's, so
y = W x. The constants go into the weights: W_Q = W_qᵀ/√hidden, W_O = 0.1 · W_oᵀ; query and key are padded with zeros
from `hidden` to the width of the values.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.foreign.arrays import expect_shape, refuse_unused, to_weights
from models.foreign.contents import Contents
from models.foreign.layouts import inputs_and_labels, pairs_layout, to_layout
from models.foreign.tokens import TokenForm
from models.foreign.value import Array, Foreign, ForeignError, check_parity
from models.transformer import HookedTransformer

NAME = "lsa-layernorm"
OPTIONS = ("layout",)
OUTPUT_SCALE = 0.1
EPS = 1e-5
PARTS = (
    "W_q.weight",
    "W_k.weight",
    "W_v.weight",
    "W_o.weight",
    *(f"norm{i}.{p}" for i in (1, 2) for p in ("weight", "bias")),
)


def takes(contents: Contents) -> bool:
    """Does the state dict have layers of W_q … and a pred_head."""
    return contents.kind in ("torch", "safetensors") and {"layers.0.W_q.weight", "pred_head.weight"} <= set(
        contents.arrays
    )


def load(contents: Contents, layout: str | BlockLayout | None = None) -> Foreign:
    """The model of a state dict; `layout` names other column blocks than x, then one y.

    Raises:
        ForeignError: a weight is missing, left over or of the wrong shape.
        ValueError: the layout does not fit the width of the tokens.
    """
    weights, notes = to_weights(contents.arrays, contents.name)
    n_layers = _count_layers(weights)
    hidden, width = expect_shape(weights, "layers.0.W_q.weight", None, None)
    causal = {"visibility": Visibility("causal", "causal")}
    chosen = pairs_layout(width, **causal) if layout is None else to_layout(layout, **causal)
    cfg = TransformerConfig(
        n_layers, 1, width, max(hidden, width), normalization_type="LN", post_norm=True, eps=EPS, d_out=1
    )
    model = HookedTransformer.from_weights(cfg, chosen, _converted(weights, n_layers, hidden, width))
    parity = check_parity(model, lambda z: _forward(weights, n_layers, hidden, z), "plain torch from the state dict")
    assumed = (f"attention output × {OUTPUT_SCALE}, scores / √{hidden}, eps {EPS:g}: of that code, not in the file",)
    form = TokenForm() if inputs_and_labels(chosen) else None
    return Foreign(model, form, contents.provenance(NAME, layout=chosen.to_dict()), (*assumed, *notes), parity)


def _count_layers(weights: Mapping[str, Tensor]) -> int:
    numbers = {int(found[1]) for name in weights if (found := re.match(r"layers\.(\d+)\.", name))}
    if numbers != set(range(len(numbers))):
        raise ForeignError(f"the layers of the file are {sorted(numbers)}, and none may be left out")
    return len(numbers)


def _converted(weights: Mapping[str, Tensor], n_layers: int, hidden: int, width: int) -> dict[str, Tensor]:
    head = weights["pred_head.weight"]
    expect_shape(weights, "pred_head.weight", 1, width)
    converted = {"unembed.W_U": head.T.contiguous(), "unembed.b_U": head.new_zeros(1)}
    used = {"pred_head.weight"}
    for index in range(n_layers):
        names = {part: f"layers.{index}.{part}" for part in PARTS}
        for part, name in names.items():
            rows = hidden if part[:3] in ("W_q", "W_k") else width
            expect_shape(weights, name, *((rows, width) if part.startswith("W") else (width,)))
        used |= set(names.values())
        block = {part: weights[name] for part, name in names.items()}
        converted |= {f"blocks.{index}.{name}": W for name, W in _block(block, hidden, width).items()}
    refuse_unused(weights, used, NAME)
    return converted


def _block(part: Mapping[str, Tensor], hidden: int, width: int) -> dict[str, Tensor]:
    d_head = max(hidden, width)
    W = {name: part[f"W_{name}.weight"].T for name in "qkvo"}
    columns = {"W_Q": W["q"] / hidden**0.5, "W_K": W["k"], "W_V": W["v"]}
    padded = {name: functional.pad(M, (0, d_head - M.shape[1])) for name, M in columns.items()}
    padded["W_O"] = functional.pad(OUTPUT_SCALE * W["o"], (0, 0, 0, d_head - width))
    norms = {"ln1.w": "norm1.weight", "ln1.b": "norm1.bias", "ln_post.w": "norm2.weight", "ln_post.b": "norm2.bias"}
    attention = {f"attn.{name}": M[None].contiguous() for name, M in padded.items()}
    return attention | {name: part[theirs] for name, theirs in norms.items()}


def _forward(weights: Mapping[str, Tensor], n_layers: int, hidden: int, tokens: Array) -> Array:
    """The forward pass by the formula above, in float64."""

    def norm(z: Tensor, name: str) -> Tensor:
        spread = z.var(-1, keepdim=True, correction=0)
        return (z - z.mean(-1, keepdim=True)) / (spread + EPS).sqrt() * weights[f"{name}.weight"] + weights[
            f"{name}.bias"
        ]

    z: Any = torch.from_numpy(tokens)
    for layer in (f"layers.{index}" for index in range(n_layers)):
        u = norm(z, f"{layer}.norm1")
        q, k, v = (u @ weights[f"{layer}.W_{name}.weight"].T for name in "qkv")
        mixed = (q @ k.mT / hidden**0.5).tril() @ v
        z = norm(z + OUTPUT_SCALE * mixed @ weights[f"{layer}.W_o.weight"].T, f"{layer}.norm2")
    return (z @ weights["pred_head.weight"].T).numpy()
