import pytest
import torch

from interp.hooks import ATTENTION_POINTS, BLOCK_POINTS, Hooked, capture, check_names, hook_name, run_with_hooks
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.transformer import HookedTransformer


@pytest.fixture
def model() -> HookedTransformer:
    cfg = TransformerConfig(2, 2, 4, 3, attn_only=False, d_mlp=5, kernel=AttentionKernel("exp", "sum"), init_std=0.3)
    return HookedTransformer(cfg, BlockLayout.standard(x=3, y=1)).double()


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_model_is_hooked(model: HookedTransformer):
    assert isinstance(model, Hooked)


@pytest.mark.parametrize("point", ATTENTION_POINTS + BLOCK_POINTS)
@pytest.mark.parametrize("layer", [0, 1])
def test_every_known_point_is_a_hook_of_the_model(point: str, layer: int, model: HookedTransformer):
    assert hook_name(point, layer) in model.hook_dict


def test_names_are_transformer_lenss():
    assert hook_name("pattern", 2) == "blocks.2.attn.hook_pattern"
    assert hook_name("mlp_out", 0) == "blocks.0.hook_mlp_out"


def test_an_unknown_point_lists_the_known():
    with pytest.raises(ValueError, match="unknown hook point 'patern'; known points: q, k, v, pattern, z, resid_pre"):
        hook_name("patern", 0)


def test_capture_returns_what_the_forward_pass_computes(model: HookedTransformer, tokens: torch.Tensor):
    names = [hook_name("z", 0), hook_name("resid_post", 1)]
    captured = capture(model, tokens, names)
    assert list(captured) == names
    assert torch.equal(model.layout.predict(captured[names[1]]), model.predict(tokens))
    assert not captured[names[0]].requires_grad
    assert captured[names[0]].shape == (2, 6, 2, 3)


def test_capture_leaves_no_hook_behind(model: HookedTransformer, tokens: torch.Tensor):
    capture(model, tokens, [hook_name("q", 0)])
    assert not any(point.has_hooks() for point in model.hook_points())


def test_hooks_act_and_are_gone_afterwards(model: HookedTransformer, tokens: torch.Tensor):
    clean = model(tokens)
    silenced = run_with_hooks(
        model, tokens, [(hook_name("attn_out", layer), lambda u, hook: 0 * u) for layer in (0, 1)]
    )
    assert not torch.allclose(silenced, clean)
    assert torch.equal(model(tokens), clean)


BAD_CALLS = {
    "capture": lambda model, tokens: capture(model, tokens, ["blocks.0.hook_q"]),
    "run": lambda model, tokens: run_with_hooks(model, tokens, [("blocks.0.hook_q", lambda u, hook: u)]),
    "check": lambda model, tokens: check_names(model, ["blocks.0.attn.hook_q", "blocks.0.hook_q"]),
    "layer": lambda model, tokens: capture(model, tokens, [hook_name("q", 2)]),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_missing_name_lists_the_names(call: str, model: HookedTransformer, tokens: torch.Tensor):
    with pytest.raises(
        ValueError, match=r"no hook point 'blocks\.[02]\.(attn\.)?hook_q'; it has: hook_embed, blocks\.0"
    ):
        BAD_CALLS[call](model, tokens)


def test_a_point_that_does_not_fire_is_an_error(tokens: torch.Tensor, model: HookedTransformer):
    class Lazy(HookedTransformer):
        def run_with_cache(self, tokens, *args, **kwargs):
            return self(tokens), {}

    lazy = Lazy(model.cfg, model.layout).double()
    with pytest.raises(ValueError, match=r"'blocks.0.attn.hook_q' exists but did not fire"):
        capture(lazy, tokens, [hook_name("q", 0)])
