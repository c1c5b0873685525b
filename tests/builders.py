"""Models written down by hand, from Q and V of every layer and head, for tests that need a known answer."""

import torch
from torch import Tensor

from interp.layout import BlockLayout, Visibility
from models.constructions.weights import linear_model
from models.transformer import HookedTransformer

WORDS = 8


def random_model(
    x: int,
    y: int,
    layers: int,
    heads: int,
    seed: int,
    scale: str = "none",
    visibility: object = None,
    size: float = 0.1,
) -> HookedTransformer:
    """Random heads in a layout x | y of two query rows."""
    visibility = visibility or Visibility()
    layout = BlockLayout.standard(x=x, y=y, n_query=2, sign=-1, visibility=visibility, machines=2)
    generator = torch.Generator().manual_seed(seed)
    Q, V = (size * torch.randn(layers, heads, x + y, x + y, generator=generator, dtype=torch.float64) for _ in range(2))
    return linear_model(Q, V, layout, scale)


def eagle_model(eta: list[float], gamma: list[float], layout: BlockLayout, noise: float = 0.0, seed: int = 0):
    """EAGLE written down: Q = diag(I, 0), V = diag(η I, −γ I), plus noise of that relative size."""
    x, y = layout.widths["x"], layout.widths["y"]
    generator = torch.Generator().manual_seed(seed)
    Q = torch.diag(torch.cat([torch.ones(x), torch.zeros(y)])).double().expand(len(eta), 1, -1, -1).clone()
    V = torch.stack(
        [torch.diag(torch.tensor([e] * x + [-c] * y)).double()[None] for e, c in zip(eta, gamma, strict=True)]
    )
    for matrix in (Q, V):
        size = matrix.norm(dim=(-2, -1), keepdim=True) / (x + y)
        matrix += noise * size * torch.randn(matrix.shape, generator=generator, dtype=torch.float64)
    return linear_model(Q, V, layout)


def random_tokens(model: HookedTransformer, count: int, n: int, seed: int, size: float = 0.4) -> Tensor:
    """Prompts without structure, D masked."""
    generator, layout = torch.Generator().manual_seed(seed), model.layout
    tokens = size * torch.randn(count, n + layout.n_query, layout.d_model, generator=generator, dtype=torch.float64)
    tokens[:, -layout.n_query :, layout.slices[layout.readout]] = 0
    return tokens @ layout.basis.T
