"""Attention-only models with linear kernels from the weights of their layers, whoever wrote them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.foreign.value import Array, ForeignError
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class LinearLayer:
    """One layer by its heads: q = z Q, k = z K, v = z V, and the update is Σ_h (Σ_k (q·k) v) O."""

    Q: Float[Tensor, "head d_model d_key"]
    K: Float[Tensor, "head d_model d_key"]
    V: Float[Tensor, "head d_model d_value"]
    O: Float[Tensor, "head d_value d_model"]  # noqa: E741

    def padded(self, d_head: int) -> dict[str, Tensor]:
        """W_Q, W_K, W_V, W_O of width d_head, zeros in what is added."""
        pad = torch.nn.functional.pad
        columns = {"W_Q": self.Q, "W_K": self.K, "W_V": self.V}
        weights = {name: pad(W, (0, d_head - W.shape[-1])) for name, W in columns.items()}
        return {**weights, "W_O": pad(self.O, (0, 0, 0, d_head - self.O.shape[-2]))}

    def update(self, z: Array, visible: Array, scale: float = 1.0) -> Array:
        """The update of rows z [batch, token, d_model] in plain numpy: visible[h, i, k], does row i see row k."""
        total = np.zeros_like(z)
        weights = (W.double().numpy() for W in (self.Q, self.K, self.V, self.O))
        for Q, K, V, O, seen in zip(*weights, visible, strict=True):  # noqa: E741
            scores = scale * (z @ Q) @ (z @ K).transpose(0, 2, 1)
            total += (scores * seen) @ (z @ V) @ O
        return total


def linear_stack(layers: Sequence[LinearLayer], layout: BlockLayout, scale: str = "none") -> HookedTransformer:
    """The model of these layers, in their dtype.

    Raises:
        ForeignError: layers of different shapes, or no layers.
    """
    shapes = {(layer.Q.shape, layer.V.shape) for layer in layers}
    if len(shapes) != 1:
        raise ForeignError(f"the layers have {len(shapes)} different shapes; a model has at least one layer, all alike")
    heads, d_model, d_key = layers[0].Q.shape
    d_head = max(d_key, layers[0].V.shape[-1])
    cfg = TransformerConfig(len(layers), heads, d_model, d_head, kernel=AttentionKernel(scale=scale))
    weights = {
        f"blocks.{index}.attn.{name}": W.contiguous()
        for index, layer in enumerate(layers)
        for name, W in layer.padded(d_head).items()
    }
    return HookedTransformer.from_weights(cfg, layout, weights)


def split_heads(W: Float[Tensor, "d_model width"], heads: int) -> Float[Tensor, "head d_model d_head"]:
    """Columns of z W as heads, side by side."""
    if heads < 1 or W.shape[1] % heads:
        raise ForeignError(f"{W.shape[1]} columns of queries or values cannot be split into {heads} heads")
    return W.unflatten(1, (heads, -1)).transpose(0, 1)


def split_output(W: Float[Tensor, "width d_model"], heads: int) -> Float[Tensor, "head d_head d_model"]:
    """Rows of the output matrix as heads, one after the other."""
    if heads < 1 or W.shape[0] % heads:
        raise ForeignError(f"{W.shape[0]} rows of the output matrix cannot be split into {heads} heads")
    return W.unflatten(0, (heads, -1))


def stack_forward(stack: Sequence[LinearLayer], layout: BlockLayout, z: Array, scale: str = "none") -> Array:
    """The last residual stream of the layers in plain numpy; the scale is "none" or "n"."""
    visible = layout.allowed(z.shape[1], len(stack[0].Q)).numpy()
    for layer in stack:
        z = z + layer.update(z, visible, 1 / layout.n_context(z.shape[1]) if scale == "n" else 1.0)
    return z
