"""TransformerLens's own models, given their residual stream: frozen at it they are the model there, and affine."""

import warnings
from importlib.metadata import version

import pytest
import torch
from torch.func import jvp

from interp.hooks import run_with_hooks
from interp.layout import BlockLayout
from interp.linearisation import linearise
from interp.linearisation.frozen import freeze

WIDTH = 12
SHAPE = {"n_layers": 2, "d_model": WIDTH, "n_ctx": 8, "d_head": 6, "n_heads": 2, "d_vocab": 7, "d_mlp": 16, "seed": 0}


def built(**options):
    """A native bridge of TransformerLens 4, or the HookedTransformer of 3.9."""
    if int(version("transformer-lens").split(".")[0]) >= 4:
        from transformer_lens.model_bridge import TransformerBridge

        return TransformerBridge.boot_native({**SHAPE, **options})
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.9 says that this class goes
        return HookedTransformer(HookedTransformerConfig(**SHAPE, **options))


def streams(seed: int = 0):
    return torch.randn(3, 6, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("act_fn", ["relu", "gelu"])
def test_with_everything_frozen_it_is_affine_and_the_model_at_the_stream(act_fn: str):
    model, tokens, far = built(act_fn=act_fn, normalization_type="LN"), streams(), streams(1)
    found = linearise(model, tokens, parts=("norms", "gates", "patterns"))
    known = found.frozen.model_answer(tokens)
    torch.testing.assert_close(found.frozen(tokens), known, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.affine(far), found.frozen(far), rtol=1e-8, atol=1e-9)
    assert (found.frozen(far) - found.frozen.model_answer(far)).abs().max() > 1e-3


def test_the_answer_is_the_models_own_and_the_tangent_its_jvp():
    model, tokens = built(act_fn="relu", normalization_type="LN"), streams()
    found = linearise(model, tokens)
    words, copy = torch.zeros(3, 6, dtype=torch.long), found.frozen.asked.model

    def forward(z):
        return run_with_hooks(copy, words, [("blocks.0.hook_resid_pre", lambda stream, hook: z)])[:, -1:]

    along = streams(2)
    value, change = jvp(forward, (tokens,), (along,))
    torch.testing.assert_close(found.tangent.value, value.detach(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        found.tangent(tokens + along) - found.tangent.value, change.detach(), rtol=1e-8, atol=1e-10
    )


def test_a_layout_reads_the_last_stream():
    model, tokens, seen = built(act_fn="relu", normalization_type="LN"), streams(), []
    layout = BlockLayout.standard(x=WIDTH - 2, y=2, sign=-1)
    frozen = freeze(model, tokens, layout)
    keep = ("blocks.1.hook_resid_post", lambda z, hook: seen.append(z.detach()))
    run_with_hooks(
        frozen.asked.model,
        torch.zeros(3, 6, dtype=torch.long),
        [("blocks.0.hook_resid_pre", lambda z, hook: tokens), keep],
    )
    torch.testing.assert_close(frozen(tokens), -seen[0][:, -1:, -2:], rtol=1e-9, atol=1e-11)
