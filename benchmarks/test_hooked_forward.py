"""What hook points and checks cost: the hooked forward pass beside the same computation in plain torch.

Batch 64, 64 tokens, one thread, float32, nothing hooked; the median ratio of paired runs is printed and kept in the
benchmark's extra_info. At d_model = 32 a layer takes well under a millisecond, so there the ratio shows fixed costs.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks import plain
from benchmarks.paired import paired_ratio
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.transformer import HookedTransformer

BATCH, TOKENS, LAYERS, ROUNDS = 64, 64, 4, 101


def linear(d_model: int, heads: int = 4) -> tuple[HookedTransformer, Callable[[Tensor], Tensor], int]:
    layout = BlockLayout.standard(x=d_model - 2, y=2, n_query=2, sign=-1)
    cfg = TransformerConfig(LAYERS, heads, d_model, d_model // heads, init_std=0.1 / d_model)
    model = HookedTransformer(cfg, layout)
    return model, plain.single_head(model) if heads == 1 else plain.linear_attention(model), d_model


def one_head(d_model: int) -> tuple[HookedTransformer, Callable[[Tensor], Tensor], int]:
    return linear(d_model, heads=1)


def softmax(d_model: int) -> tuple[HookedTransformer, Callable[[Tensor], Tensor], int]:
    layout = BlockLayout.standard(x=5, y=1, flag=2, n_query=16, visibility=Visibility("context", "context_and_self"))
    cfg = TransformerConfig(
        n_layers=LAYERS,
        n_heads=4,
        d_model=d_model,
        d_head=d_model // 4,
        kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
        attn_only=False,
        d_mlp=4 * d_model,
        act_fn="gelu",
        normalization_type="LN",
        use_biases=True,
        d_in=8,
        d_out=1,
    )
    model = HookedTransformer(cfg, layout)
    return model, plain.softmax_transformer(model), 8


@pytest.mark.parametrize("d_model", [32, 256])
@pytest.mark.parametrize("build", [linear, one_head, softmax], ids=lambda build: build.__name__)
def test_hooked_forward(benchmark, build: Callable, d_model: int):
    model, by_hand, width = build(d_model)
    tokens = torch.randn(BATCH, TOKENS, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model(tokens), by_hand(tokens), rtol=1e-4, atol=1e-4)
        ratio = paired_ratio(lambda: model(tokens), lambda: by_hand(tokens), ROUNDS if d_model == 32 else ROUNDS // 4)
        benchmark.pedantic(model, args=(tokens,), rounds=5, warmup_rounds=1)
    benchmark.extra_info |= {"model": build.__name__, "d_model": d_model, "ratio_to_plain_torch": ratio}
    print(f"\n{build.__name__}, d_model = {d_model}: hooked forward {ratio:.3f} × plain torch")
