"""The same function in other weights."""

from collections.abc import Callable

import torch
from torch import Tensor

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.transformer import HookedTransformer
from tests.builders import linear_model

WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


def weights_of(model: HookedTransformer) -> dict[str, Tensor]:
    """Name → [layer, head, ., .], in float64."""
    return {
        name: torch.stack([getattr(block.attn, name) for block in model.blocks]).detach().double() for name in WEIGHTS
    }


def with_weights(model: HookedTransformer, weights: dict[str, Tensor]) -> HookedTransformer:
    """A model of the same layout with these weights."""
    layers, heads, d_model, d_head = weights["W_Q"].shape
    other = HookedTransformer(TransformerConfig(layers, heads, d_model, d_head, kernel=model.cfg.kernel), model.layout)
    with torch.no_grad():
        for layer, block in enumerate(other.double().blocks):
            for name, weight in weights.items():
                getattr(block.attn, name).copy_(weight[layer])
    return other


def _gauge(size: int, seed: int) -> Tensor:
    noise = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.eye(size, dtype=torch.float64) + 0.3 * noise


def query_key_gauge(model: HookedTransformer) -> HookedTransformer:
    """W_Q G and W_K G⁻ᵀ."""
    W, G = weights_of(model), _gauge(model.cfg.d_head, 1)
    return with_weights(model, {**W, "W_Q": W["W_Q"] @ G, "W_K": W["W_K"] @ torch.linalg.inv(G).T})


def value_output_gauge(model: HookedTransformer) -> HookedTransformer:
    """W_V G and G⁻¹ W_O."""
    W, G = weights_of(model), _gauge(model.cfg.d_head, 2)
    return with_weights(model, {**W, "W_V": W["W_V"] @ G, "W_O": torch.linalg.inv(G) @ W["W_O"]})


def split_in_three(model: HookedTransformer) -> HookedTransformer:
    """The first head as three, with shares .2, .5, .3 of its values."""
    parts = {"W_V": (0.2, 0.5, 0.3)}
    return with_weights(
        model,
        {
            name: torch.cat([*(share * w[:, :1] for share in parts.get(name, (1, 1, 1))), w[:, 1:]], dim=1)
            for name, w in weights_of(model).items()
        },
    )


def permuted(model: HookedTransformer) -> HookedTransformer:
    """The first head split in three, then all heads in reverse order."""
    split = split_in_three(model)
    return with_weights(split, {name: w.flip(1) for name, w in weights_of(split).items()})


DISGUISES: dict[str, Callable[[HookedTransformer], HookedTransformer]] = {
    "query-key gauge": query_key_gauge,
    "value-output gauge": value_output_gauge,
    "split in three": split_in_three,
    "permuted": permuted,
}


def rotated(model: HookedTransformer, basis: Tensor) -> HookedTransformer:
    """The model whose residual rows are z basisᵀ, with the layout that says so."""
    inverse, W, layout = torch.linalg.inv(basis), weights_of(model), model.layout
    Q = inverse.T @ W["W_Q"] @ W["W_K"].mT @ inverse
    V = inverse.T @ W["W_V"] @ W["W_O"] @ basis.T
    columns = {name: basis @ block for name, block in layout.columns.items()}
    return linear_model(Q, V, BlockLayout(columns, n_query=layout.n_query, sign=layout.sign, machines=layout.machines))
