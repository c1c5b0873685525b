"""Models and prompts that several probe tests share."""

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.prompts import LogUniformSpectrum, Prompts
from models.transformer import HookedTransformer, TransformerConfig
from tests.builders import eagle_model

LINEAR = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=2, kappa=3.0)
SCALAR = LogUniformSpectrum(n=10, d=3, kappa=2.0, scale=2.0)


def eagle() -> HookedTransformer:
    """Three conditioned layers (4/3 in units of 1/‖A_l‖²), so that A_lᵀC_l comes close to a multiple of w."""
    steps = [4 / 3, 12.0, 108.0]
    return eagle_model([-step for step in steps], steps, LINEAR.layout(sign=-1), noise=1e-2)


def softmax(seed: int = 0) -> HookedTransformer:
    """A random pre-LN softmax transformer with MLPs, on tokens (x, y)."""
    kernel = AttentionKernel("exp", "sum", "sqrt_d_head")
    cfg = TransformerConfig(2, 2, 16, 8, kernel, False, 32, "gelu", "LN", use_biases=True, d_in=4, d_out=1, seed=seed)
    return HookedTransformer(cfg, BlockLayout.standard(x=3, y=1, n_query=1)).double()


def linear_prompts(count: int = 600, seed: int = 0) -> Prompts:
    return LINEAR.sample(count, seed=seed)


def scalar_prompts(count: int = 600, seed: int = 0) -> Prompts:
    return SCALAR.sample(count, seed=seed)
