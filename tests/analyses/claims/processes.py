"""Small models and prompts for the claims on Gaussian processes."""

from dataclasses import replace

import torch

from interp.kernels import AttentionKernel
from models.config import TransformerConfig
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

FAMILY = GaussianProcess(n=6, n_query=1)
CONFIG = TransformerConfig(
    n_layers=4,
    n_heads=1,
    d_model=8,
    d_head=4,
    kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
    attn_only=False,
    d_mlp=12,
    act_fn="gelu",
    normalization_type="LN",
    use_biases=True,
    d_in=2,
    d_out=1,
)


def small_model(seed: int = 0, **settings: object) -> HookedTransformer:
    """The architecture of gp-softmax, small, with random weights; every parameter counts."""
    model = HookedTransformer(replace(CONFIG, seed=seed, **settings), FAMILY.layout(sign=1.0)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model
