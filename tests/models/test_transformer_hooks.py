"""Hooked runs: names, caches, TransformerLens's own tools, interventions."""

import pytest
import torch
from torch import Tensor
from transformer_lens import ActivationCache

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.transformer import HookedTransformer

LAYOUT = BlockLayout.standard(x=3, y=1, n_query=2, visibility=Visibility("context", "context_and_self"))
SHAPES = {"n_layers": 3, "n_heads": 2, "d_model": 4, "d_head": 3, "init_std": 0.3}
MODELS = {
    "linear": {},
    "learned": dict(kernel=AttentionKernel("learned", "sum"), d_feature=5, use_biases=True),
    "softmax": dict(
        kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
        attn_only=False,
        d_mlp=6,
        act_fn="gelu",
        normalization_type="LN",
        use_biases=True,
        positional_embedding_type="standard",
        n_ctx=10,
        d_in=4,
        d_out=2,
    ),
    "gaussian with relu MLP": dict(
        kernel=AttentionKernel("gaussian", "sum"), attn_only=False, d_mlp=6, use_biases=True, normalization_type="LN"
    ),
}
BLOCK = ["hook_resid_pre", "hook_attn_out", "hook_resid_post"]
ATTENTION = [f"attn.hook_{point}" for point in ("q", "k", "v", "attn_scores", "pattern", "z")]
MLP = ["hook_resid_mid", "hook_mlp_out", "mlp.hook_pre", "mlp.hook_post"]
NORMS = [f"ln{i}.hook_{point}" for i in (1, 2) for point in ("scale", "normalized")]


def build(name: str) -> HookedTransformer:
    model = HookedTransformer(TransformerConfig(**SHAPES, **MODELS[name]), LAYOUT).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def random_tokens(batch: int = 4) -> Tensor:
    return torch.randn(batch, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> HookedTransformer:
    return build(request.param)


@pytest.fixture
def softmax() -> HookedTransformer:
    return build("softmax")


@pytest.fixture
def tokens() -> Tensor:
    return random_tokens()


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-11, atol=1e-11)


def test_hook_names_are_transformer_lenss(softmax: HookedTransformer):
    per_block = [f"blocks.{i}.{name}" for i in range(3) for name in BLOCK + ATTENTION + MLP + NORMS]
    final = ["ln_final.hook_scale", "ln_final.hook_normalized"]
    assert set(softmax.hook_dict) == {"hook_embed", "hook_pos_embed", *per_block, *final}
    linear = [f"blocks.{i}.{name}" for i in range(3) for name in BLOCK + ATTENTION]
    assert set(build("linear").hook_dict) == {"hook_embed", *linear}


def test_every_hook_fires_with_transformer_lenss_layout(softmax: HookedTransformer, tokens: Tensor):
    _, cache = softmax.run_with_cache(tokens)
    assert set(cache.keys()) == set(softmax.hook_dict)
    stream, heads, rows = (4, 8, 4), (4, 8, 2, 3), (4, 2, 8, 8)
    shapes = {"q": heads, "k": heads, "v": heads, "z": heads, "attn_scores": rows, "pattern": rows}
    shapes |= dict.fromkeys(("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"), stream)
    for point, shape in shapes.items():
        assert cache[point, 1].shape == shape
    assert cache["blocks.1.mlp.hook_post"].shape == (4, 8, 6)
    assert cache["blocks.1.ln1.hook_scale"].shape == (4, 8, 1)
    assert cache["hook_pos_embed"].shape == stream


def test_cached_values_are_what_their_names_say(softmax: HookedTransformer, tokens: Tensor):
    _, cache = softmax.run_with_cache(tokens)
    block = softmax.blocks[1]
    normal = cache["blocks.1.ln1.hook_normalized"] * block.ln1.w + block.ln1.b
    assert close(cache["q", 1], torch.einsum("btm,hmd->bthd", normal, block.attn.W_Q) + block.attn.b_Q)
    assert close(cache["z", 1], torch.einsum("bhik,bkhd->bihd", cache["pattern", 1], cache["v", 1]))
    assert close(cache["pattern", 1].sum(-1), torch.ones(4, 2, 8).double())
    assert close(cache["resid_post", 1], cache["resid_mid", 1] + cache["mlp_out", 1])
    assert close(cache["resid_mid", 1], cache["resid_pre", 1] + cache["attn_out", 1])


def test_the_cache_does_not_change_the_output(model: HookedTransformer, tokens: Tensor):
    output, cache = model.run_with_cache(tokens)
    assert isinstance(cache, ActivationCache)
    assert close(output, model(tokens))
    assert not any(point.has_hooks() for point in model.hook_points())
    _, plain = model.run_with_cache(tokens, return_cache_object=False)
    assert type(plain) is dict


def test_resid_decomposes(model: HookedTransformer, tokens: Tensor):
    _, cache = model.run_with_cache(tokens)
    final = cache["resid_post", 2]
    parts, labels = cache.decompose_resid(return_labels=True)
    assert close(parts.sum(0), final)
    assert labels[0] == "embed"
    assert len(labels) == len(parts)
    accumulated = cache.accumulated_resid()
    assert torch.equal(accumulated[0], cache["resid_pre", 0])
    assert torch.equal(accumulated[-1], final)


def test_heads_add_up(model: HookedTransformer, tokens: Tensor):
    _, cache = model.run_with_cache(tokens)
    by_hand = torch.stack([torch.einsum("bthd,hdm->hbtm", cache["z", i], model.W_O[i]) for i in range(3)]).flatten(0, 1)
    assert close(cache.stack_head_results(), by_hand)
    assert close(cache.stack_head_results(incl_remainder=True).sum(0), cache["resid_post", 2])


@pytest.mark.parametrize("expand_neurons", [True, False])
def test_full_decomposition_includes_the_biases(model: HookedTransformer, tokens: Tensor, expand_neurons: bool):
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: "hook_result" not in name)
    parts = cache.get_full_resid_decomposition(expand_neurons=expand_neurons)
    assert close(parts.sum(0), cache["resid_post", 2])


def test_bias_up_to_the_mlp_of_a_layer(softmax: HookedTransformer):
    first, second = softmax.blocks[0], softmax.blocks[1]
    expected = first.attn.b_O + first.mlp.b_out + second.attn.b_O
    assert close(softmax.accumulated_bias(1, mlp_input=True), expected)
    assert torch.equal(
        softmax.accumulated_bias(1, mlp_input=True, include_mlp_biases=False), first.attn.b_O + second.attn.b_O
    )
    assert torch.equal(softmax.accumulated_bias(0), torch.zeros(4).double())


def test_final_layer_norm_is_applied_to_a_stack(softmax: HookedTransformer, tokens: Tensor):
    _, cache = softmax.run_with_cache(tokens)
    parts = cache.decompose_resid(apply_ln=True)
    assert close(parts.sum(0), cache["ln_final.hook_normalized"])


def test_circuits_are_factored_matrices(model: HookedTransformer):
    QK, OV = model.QK, model.OV
    assert QK.AB.shape == OV.AB.shape == (3, 2, 4, 4)
    assert close(QK.AB, torch.einsum("lhmd,lhnd->lhmn", model.W_Q, model.W_K))
    assert close(OV.AB, torch.einsum("lhmd,lhdn->lhmn", model.W_V, model.W_O))
    assert close(QK[1, 0].AB, model.blocks[1].attn.QK.AB[0])
    assert close(QK.svd()[1], torch.linalg.svdvals(QK.AB)[..., :3])


def test_mlp_weights_are_stacked(softmax: HookedTransformer):
    assert torch.equal(softmax.W_in[2], softmax.blocks[2].mlp.W_in)
    assert torch.equal(softmax.W_out[0], softmax.blocks[0].mlp.W_out)


def test_a_batch_of_one_can_lose_its_dimension(model: HookedTransformer):
    _, cache = model.run_with_cache(random_tokens(1), remove_batch_dim=True)
    assert cache["resid_pre", 0].shape == (8, 4)
    assert cache.stack_head_results().shape == (6, 8, 4)
    with pytest.raises(ValueError, match="batch of one prompt, and this one has 4"):
        model.run_with_cache(random_tokens(), remove_batch_dim=True)


def test_positions_of_the_cache_can_be_sliced(model: HookedTransformer, tokens: Tensor):
    _, cache = model.run_with_cache(tokens, pos_slice=-1)
    _, full = model.run_with_cache(tokens)
    assert torch.equal(cache["resid_post", 2], full["resid_post", 2][:, -1:])


@pytest.mark.parametrize(
    "names_filter",
    [
        "blocks.1.hook_resid_pre",
        ["blocks.1.hook_resid_pre"],
        ("blocks.1.hook_resid_pre",),
        lambda name: "1.hook_resid_pre" in name,
    ],
    ids=["name", "list", "tuple", "function"],
)
def test_filters_select(names_filter: object, tokens: Tensor):
    _, cache = build("linear").run_with_cache(tokens, names_filter=names_filter)
    assert list(cache.keys()) == ["blocks.1.hook_resid_pre"]


def same(u: Tensor, hook: object) -> Tensor:
    return u


MISSES = {
    "cache name": lambda m, t: m.run_with_cache(t, names_filter="blocks.0.attn.hook_patern"),
    "cache list": lambda m, t: m.run_with_cache(t, names_filter=["hook_embed", "blocks.0.attn.hook_patern"]),
    "cache empty list": lambda m, t: m.run_with_cache(t, names_filter=[]),
    "cache function": lambda m, t: m.run_with_cache(t, names_filter=lambda name: "patern" in name),
    "layer": lambda m, t: m.run_with_cache(t, names_filter="blocks.3.hook_resid_pre"),
    "module": lambda m, t: m.run_with_cache(t, names_filter="blocks.0.attn"),
    "run name": lambda m, t: m.run_with_hooks(t, fwd_hooks=[("hook_embed", same), ("hook_patern", same)]),
    "run function": lambda m, t: m.run_with_hooks(t, fwd_hooks=[(lambda name: "patern" in name, same)]),
    "backward": lambda m, t: m.run_with_hooks(t, bwd_hooks=[("hook_patern", same)]),
    "context": lambda m, t: m.hooks(fwd_hooks=[("hook_patern", same)]).__enter__(),
    "add_hook": lambda m, t: m.add_hook("hook_patern", same),
    "add_hook module": lambda m, t: m.add_hook("blocks.0", same),
    "add_hook function": lambda m, t: m.add_hook(lambda name: False, same),
    "add_perma_hook": lambda m, t: m.add_perma_hook("hook_patern", same),
    "add_caching_hooks": lambda m, t: m.add_caching_hooks("hook_patern"),
    "get_caching_hooks": lambda m, t: m.get_caching_hooks(["hook_patern"]),
}


@pytest.mark.parametrize("miss", MISSES)
def test_a_miss_lists_the_names_and_hooks_nothing(miss: str, model: HookedTransformer, tokens: Tensor):
    with pytest.raises(ValueError, match=r"no hook point.*: hook_embed, .*blocks\.2\.hook_resid_post"):
        MISSES[miss](model, tokens)
    assert not any(point.has_hooks() for point in model.hook_points())
    assert model.context_level == 0


def test_added_hooks_stay_until_reset(model: HookedTransformer, tokens: Tensor):
    clean = model(tokens)
    model.add_hook(lambda name: name.endswith("hook_attn_out"), lambda u, hook: 2 * u)
    assert not torch.allclose(model(tokens), clean)
    model.reset_hooks()
    assert torch.equal(model(tokens), clean)


def test_a_hook_may_write_in_place_without_touching_the_prompt(model: HookedTransformer, tokens: Tensor):
    def erase(u: Tensor, hook: object) -> Tensor:
        u[:, 0] = 0
        return u

    before = tokens.clone()
    with torch.no_grad():
        for point in ("hook_embed", "blocks.0.hook_resid_pre"):
            model.run_with_hooks(tokens, fwd_hooks=[(point, erase)])
    assert torch.equal(tokens, before)


@pytest.mark.parametrize("point", ["attn_scores", "pattern", "q", "k", "v", "z"])
def test_edits_of_the_attention_reach_the_output(point: str, model: HookedTransformer, tokens: Tensor):
    clean = model(tokens)
    edited = model.run_with_hooks(
        tokens, fwd_hooks=[(f"blocks.0.attn.hook_{point}", lambda u, hook: u + 0.3 * u.square())]
    )
    assert not torch.allclose(edited, clean)


def test_a_kernel_swap_by_hooks_is_the_other_model(tokens: Tensor):
    """q and k are kept, the scores recomputed, the new pattern returned from `hook_pattern`."""
    model = build("linear")
    other = AttentionKernel("gaussian", "sum", "n")
    settings = SHAPES | {"kernel": other}
    expected = HookedTransformer.from_weights(TransformerConfig(**settings), LAYOUT, model.state_dict())(tokens)
    kept = {}

    def keep(u: Tensor, hook: object) -> None:
        kept[hook.name.rsplit("_", 1)[1]] = u.transpose(1, 2)

    def swap(pattern: Tensor, hook: object) -> Tensor:
        return other.pattern(other.scores(kept["q"], kept["k"], LAYOUT.n_context(8)), LAYOUT.allowed(8, 2))

    hooks = [(f"blocks.{i}.attn.hook_{name}", keep) for i in range(3) for name in "qk"]
    hooks += [(f"blocks.{i}.attn.hook_pattern", swap) for i in range(3)]
    assert close(model.run_with_hooks(tokens, fwd_hooks=hooks), expected)


def test_nothing_is_tied_to_the_cpu(model: HookedTransformer, tokens: Tensor):
    """On the meta device, which refuses to mix with another as a GPU does."""
    shape = model(tokens).shape
    model, tokens = model.to("meta"), tokens.to("meta")
    assert model(tokens).shape == shape
    output, cache = model.run_with_cache(tokens)
    assert (output.shape, output.device.type) == (shape, "meta")
    assert {cache[name].device.type for name in cache} == {"meta"}


def test_gradients_can_be_cached(tokens: Tensor):
    model, gradients = build("learned"), {}
    name = "blocks.1.attn.hook_pattern"
    model.add_hook(name, lambda g, hook: gradients.update({hook.name: g[0] if isinstance(g, tuple) else g}), dir="bwd")
    model(tokens).sum().backward()
    assert gradients[name].shape == (4, 2, 8, 8)
    assert gradients[name].abs().max() > 0
