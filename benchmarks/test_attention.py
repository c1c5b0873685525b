"""Linear attention without the pattern: growth with the number of rows, and its ratio to the pattern form.

One prompt, one head, d_model 32, float32, one thread. The pattern form is timed up to 16k rows: at 100k rows a single
pattern would take 40 GB.
"""

import statistics

import pytest
import torch

from benchmarks.paired import paired_ratio, seconds
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.transformer import HookedTransformer

D_MODEL, LARGEST_PATTERN = 32, 16_000
ROWS = (1_000, 4_000, 16_000, 100_000)
VISIBILITIES = {"context": Visibility(), "causal": Visibility("causal", "causal")}
PATTERN = [("blocks.0.attn.hook_pattern", lambda u, hook: None)]


def build(rule: str) -> HookedTransformer:
    layout = BlockLayout.standard(x=D_MODEL - 1, y=1, visibility=VISIBILITIES[rule])
    cfg = TransformerConfig(1, 1, D_MODEL, D_MODEL, kernel=AttentionKernel(scale="n"), init_std=0.1)
    return HookedTransformer(cfg, layout)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("rule", VISIBILITIES)
def test_linear_attention_without_the_pattern(benchmark, rule: str, rows: int):
    model, tokens = build(rule), torch.randn(1, rows, D_MODEL, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ratio = pattern_ratio(model, tokens) if rows <= LARGEST_PATTERN else None
        benchmark.pedantic(model, args=(tokens,), rounds=7, warmup_rounds=2)
        fewest = statistics.median(seconds(lambda: model(tokens[:, : ROWS[0]])) for _ in range(7))
    median = benchmark.stats["median"]
    growth = median / fewest
    benchmark.extra_info |= {"rule": rule, "rows": rows, "growth": growth, "pattern_over_sums": ratio}
    compared = f"pattern form {ratio:,.0f} × slower" if ratio else "pattern form does not fit"
    print(f"\n{rule}, {rows:,} rows: {1e3 * median:.2f} ms, {growth:.1f} × the time of {ROWS[0]:,} rows; {compared}")


def pattern_ratio(model: HookedTransformer, tokens: torch.Tensor) -> float:
    """Time with the pattern / time without; the outputs agree."""

    def with_pattern() -> torch.Tensor:
        return model.run_with_hooks(tokens, fwd_hooks=PATTERN)

    assert torch.allclose(with_pattern(), model(tokens), rtol=1e-3, atol=1e-4)
    if tokens.shape[1] == LARGEST_PATTERN:
        return seconds(with_pattern) / min(seconds(lambda: model(tokens)) for _ in range(5))
    return paired_ratio(with_pattern, lambda: model(tokens), rounds=7)
