"""Every kernel in every layer of a 6-layer model: the unchanged prefix re-used against independent forward passes."""

import torch

from benchmarks.paired import paired_ratio
from interp.ablation import Runs, kernel_swaps
from interp.kernels import KERNELS, AttentionKernel
from models.config import TransformerConfig
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

LEAST, AGREEMENT, PROMPTS = 1.6, 1e-12, 32


def test_prefix_reuse(benchmark):
    family = GaussianProcess(n_query=16)
    cfg = TransformerConfig(
        n_layers=6,
        n_heads=1,
        d_model=32,
        d_head=32,
        kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
        attn_only=False,
        d_mlp=128,
        act_fn="gelu",
        normalization_type="LN",
        use_biases=True,
        d_in=2,
        d_out=1,
    )
    model, tokens = HookedTransformer(cfg, family.layout()).double(), family.sample(PROMPTS, seed=0).tokens
    swaps = [swap for swap in kernel_swaps(model, list(KERNELS)) if len(swap.layers) == 1]

    def sweep(reuse: bool) -> list[torch.Tensor]:
        runs = Runs(model, tokens, reuse=reuse)
        return [runs.predictions(swap) for swap in swaps]

    pairs = zip(sweep(True), sweep(False), strict=True)
    gap = max(((first - second).abs().max() / second.abs().max()).item() for first, second in pairs)
    ratio = paired_ratio(lambda: sweep(False), lambda: sweep(True), rounds=7)
    benchmark.pedantic(sweep, args=(True,), rounds=1)
    benchmark.extra_info |= {"independent_over_reused": ratio, "largest_difference": gap}
    print(f"\n{len(swaps)} swaps: {ratio:.2f} × faster with the prefix re-used, answers differ by {gap:.1e}")
    assert gap <= AGREEMENT and ratio >= LEAST
