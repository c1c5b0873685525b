"""From the matrices Q and V of every head, in block coordinates, to a model."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.transformer import HookedTransformer

Matrix = Float[Tensor, "d_model d_model"]
Head = tuple[Tensor, Tensor]


def linear_model(
    Q: Float[Tensor, "layer head d_model d_model"],
    V: Float[Tensor, "layer head d_model d_model"],
    layout: BlockLayout,
    scale: str = "none",
) -> HookedTransformer:
    """A linear-attention model in float64 in which z_i ← z_i + Σ_h z_i Q_h S_i V_h: W_Q = Q, W_V = V, the rest I."""
    n_layers, n_heads, d_model, _ = Q.shape
    cfg = TransformerConfig(n_layers, n_heads, d_model, d_model, kernel=AttentionKernel(scale=scale))
    eye = torch.eye(d_model, dtype=torch.float64).expand(n_layers, n_heads, -1, -1)
    return model_from(cfg, layout, {"W_Q": Q, "W_K": eye, "W_V": V, "W_O": eye})


def model_from(cfg: TransformerConfig, layout: BlockLayout, weights: Mapping[str, Tensor]) -> HookedTransformer:
    """An attention-only model in float64 with the weights W_Q, W_K, W_V, W_O [layer, head, ...]."""
    model = HookedTransformer(cfg, layout).double()
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            for name, weight in weights.items():
                getattr(block.attn, name).copy_(weight[layer])
    return model


def from_heads(layers: Sequence[Sequence[Head]], layout: BlockLayout, scale: str = "none") -> HookedTransformer:
    """A linear-attention model from the heads (Q, V) of every layer."""
    if not layers:
        raise ValueError("a construction needs at least one layer; got no step sizes")
    Q, V = (torch.stack([torch.stack([head[i] for head in heads]) for heads in layers]) for i in (0, 1))
    return linear_model(Q, V, layout, scale)


def place(layout: BlockLayout, entries: Mapping[tuple[str, str], float | Tensor]) -> Matrix:
    """A matrix with the given blocks, {(rows, columns): matrix or c for c · identity}, and zeros elsewhere."""
    matrix, at = torch.zeros(layout.d_model, layout.d_model, dtype=torch.float64), layout.slices
    for (rows, columns), entry in entries.items():
        block = entry if isinstance(entry, Tensor) else entry * torch.eye(layout.widths[rows], dtype=torch.float64)
        matrix[at[rows], at[columns]] = block
    return matrix


def linear_heads(layout: BlockLayout, read: Mapping[str, float], write: Mapping[str, float]) -> list[Head]:
    """Δz_into = write[into] · S[constant, constant] · Σ read[block] z_block, one head a coordinate."""
    at, constant, heads = layout.slices, layout.slices["constant"].start, []
    for index in range(layout.widths[next(iter(read))]):
        Q, V = torch.zeros(2, layout.d_model, layout.d_model, dtype=torch.float64)
        for block, coefficient in read.items():
            Q[at[block].start + index, constant] = coefficient
        for block, coefficient in write.items():
            V[constant, at[block].start + index] = coefficient
        heads.append((Q, V))
    return heads
