"""Small models with norms, MLPs and softmax, and prompts for them."""

import torch

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.transformer import HookedTransformer

LINEAR, SOFTMAX = AttentionKernel(), AttentionKernel("exp", "sum", "sqrt_d_head")


def built(
    seed: int = 0, layers: int = 2, visibility: str = "causal", sign: float = 1.0, **options
) -> HookedTransformer:
    """A random model on rows x (3) | y (1), of two heads; norms with weights and biases of their own."""
    layout = BlockLayout.standard(x=3, y=1, n_query=1, sign=sign, visibility=Visibility(visibility, visibility))
    options = {"kernel": LINEAR, "init_std": 0.5, "seed": seed, **options}
    model = HookedTransformer(TransformerConfig(layers, 2, 4, 3, **options), layout).double()
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".b_" in name or name.endswith((".w", ".b")):
                value += 0.3 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
    return model


def prompts(count: int = 5, rows: int = 6, seed: int = 1):
    tokens = torch.randn(count, rows + 1, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tokens[:, -1, 3] = 0
    return tokens


KINDS = {
    "linear attention with norms": {"normalization_type": "LN", "d_out": 1},
    "norms of the stream": {"normalization_type": "LN", "post_norm": True, "d_out": 1},
    "ReLU": {"attn_only": False, "d_mlp": 7, "act_fn": "relu"},
    "GELU and norms": {"attn_only": False, "d_mlp": 7, "act_fn": "gelu", "normalization_type": "LN", "d_out": 2},
    "softmax, ReLU and norms": {
        "kernel": SOFTMAX,
        "attn_only": False,
        "d_mlp": 7,
        "normalization_type": "LN",
        "use_biases": True,
        "d_in": 4,
        "d_out": 1,
        "d_head": 3,
    },
}
for options in KINDS.values():
    options.pop("d_head", None)
