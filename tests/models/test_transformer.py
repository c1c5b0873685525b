"""The forward pass against plain torch modules; the door; the weights."""

import copy

import pytest
import torch
from torch import Tensor, nn

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.components import MLP
from models.config import TransformerConfig
from models.transformer import HookedTransformer

SOFTMAX = AttentionKernel("exp", "sum", "sqrt_d_head")
LAYOUT = BlockLayout.standard(x=3, y=1, flag=1, n_query=2, visibility=Visibility("causal", "context_and_self"))
ROTATION = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))).Q


def softmax_model(**settings: object) -> HookedTransformer:
    """Pre-LN, MLP, biases, positions, read-in and read-out; every parameter random."""
    full = dict(attn_only=False, d_mlp=7, act_fn="gelu", normalization_type="LN", use_biases=True, d_in=5, d_out=2)
    full |= dict(positional_embedding_type="standard", n_ctx=12, init_std=0.3)
    model = HookedTransformer(TransformerConfig(2, 2, 6, 3, SOFTMAX, **(full | settings)), LAYOUT).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def random_tokens(width: int = 5, rows: int = 9, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(4, rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).to(dtype)


def torch_layer(block: nn.Module, cfg: TransformerConfig) -> nn.TransformerEncoderLayer:
    """PyTorch's own pre-LN layer with the block's weights."""
    layer = nn.TransformerEncoderLayer(
        6, 2, 7, dropout=0.0, activation=cfg.act_fn, layer_norm_eps=cfg.eps, batch_first=True, norm_first=True
    ).double()
    attn, mlp = block.attn, block.mlp
    flat = {name: getattr(attn, f"W_{name}").permute(0, 2, 1).reshape(6, 6) for name in "QKV"}
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([flat[name] for name in "QKV"]),
            "self_attn.in_proj_bias": torch.cat([getattr(attn, f"b_{name}").reshape(6) for name in "QKV"]),
            "self_attn.out_proj.weight": attn.W_O.reshape(6, 6).T,
            "self_attn.out_proj.bias": attn.b_O,
            "linear1.weight": mlp.W_in.T,
            "linear1.bias": mlp.b_in,
            "linear2.weight": mlp.W_out.T,
            "linear2.bias": mlp.b_out,
            "norm1.weight": block.ln1.w,
            "norm1.bias": block.ln1.b,
            "norm2.weight": block.ln2.w,
            "norm2.bias": block.ln2.b,
        }
    )
    return layer


def test_gelu_new_is_the_tanh_formula():
    u = torch.linspace(-4, 4, 41, dtype=torch.float64)
    expected = u / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (u + 0.044715 * u**3)))
    mlp = MLP(TransformerConfig(1, 1, 6, 3, attn_only=False, d_mlp=7, act_fn="gelu_new"))
    assert torch.allclose(mlp.activation(u), expected, rtol=0, atol=1e-15)


def test_post_norm_normalises_the_stream_and_replaces_the_norm_before_the_read_out():
    model, tokens = softmax_model(post_norm=True), random_tokens()
    z = tokens @ model.embed.W_E + model.embed.b_E + model.pos_embed.W_pos[:9]
    for block in model.blocks:
        z = z + block.attn(block.ln1(z))
        z = z + block.mlp(block.ln2(z))
        z = nn.functional.layer_norm(z, (6,), block.ln_post.w, block.ln_post.b, model.cfg.eps)
    expected = z @ model.unembed.W_U + model.unembed.b_U
    assert torch.allclose(model(tokens), expected, rtol=0, atol=1e-12)
    assert "ln_final.w" not in model.state_dict() and "blocks.1.ln_post.w" in model.state_dict()


@pytest.mark.parametrize("act_fn", ["relu", "gelu"])
def test_softmax_model_is_torchs_transformer(act_fn: str):
    model, tokens = softmax_model(act_fn=act_fn), random_tokens()
    hidden = ~LAYOUT.allowed(9, 1)[0]
    z = nn.functional.linear(tokens, model.embed.W_E.T, model.embed.b_E) + model.pos_embed.W_pos[:9]
    for block in model.blocks:
        z = torch_layer(block, model.cfg)(z, src_mask=hidden)
    z = nn.functional.layer_norm(z, (6,), model.ln_final.w, model.ln_final.b, model.cfg.eps)
    expected = z @ model.unembed.W_U + model.unembed.b_U
    assert torch.allclose(model(tokens), expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(model.predict(tokens), expected[:, -2:], rtol=1e-12, atol=1e-12)


def test_layer_norm_is_the_same_when_hooked():
    model, tokens = softmax_model(), random_tokens()
    clean = model(tokens)
    points = [f"blocks.{i}.ln{j}.hook_{p}" for i in (0, 1) for j in (1, 2) for p in ("scale", "normalized")]
    hooks = [(name, lambda u, hook: u) for name in [*points, "ln_final.hook_scale"]]
    assert torch.allclose(model.run_with_hooks(tokens, fwd_hooks=hooks), clean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        (dict(positional_embedding_type=None, n_ctx=None), "pos_embed.W_pos"),
        (dict(normalization_type=None), "blocks.0.ln1.w"),
        (dict(use_biases=False), "blocks.1.attn.b_Q"),
        (dict(attn_only=True, d_mlp=None), "blocks.0.mlp.W_in"),
        (dict(attn_only=True, d_mlp=None), "blocks.0.ln2.w"),
        (dict(d_in=None, d_model=5), "embed.W_E"),
    ],
)
def test_each_part_is_optional(settings: dict, changed: str):
    model = HookedTransformer(TransformerConfig(**(softmax_model().cfg.__dict__ | settings)), LAYOUT).double()
    assert changed in softmax_model().state_dict()
    assert changed not in model.state_dict()
    assert model(random_tokens()).shape == (4, 9, 2)


def test_each_weight_matters():
    model, tokens = softmax_model(), random_tokens()
    clean = model(tokens)
    without_effect, generator = [], torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        change = 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            parameter += change
            if torch.allclose(model(tokens), clean, rtol=1e-9):
                without_effect.append(name)
            parameter -= change
    assert without_effect == [f"blocks.{i}.attn.b_K" for i in (0, 1)]  # softmax does not see a constant in a row


def test_linear_attention_by_the_formula():
    """z_i ← z_i + Σ_h V_hᵀ S_i Q_hᵀ z_i with S_i the sum over the context (two layers, one head)."""
    layout = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1)
    model = HookedTransformer(TransformerConfig(2, 1, 5, 4, init_std=0.4), layout).double()
    z = random_tokens()
    tokens = z.clone()
    for block in model.blocks:
        attn = block.attn
        Q, V = attn.W_Q[0] @ attn.W_K[0].T, attn.W_V[0] @ attn.W_O[0]
        z = z + torch.einsum("bia,ac,bkc,bkd,dj->bij", z, Q, z[:, :-2], z[:, :-2], V)
    assert torch.allclose(model(tokens), -z[..., 3:], rtol=1e-12, atol=1e-12)
    assert torch.allclose(model.predict(tokens), -z[:, -2:, 3:], rtol=1e-12, atol=1e-12)


def test_a_rotated_stream_is_the_same_model():
    plain = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1)
    rotated = BlockLayout({"x": ROTATION[:, :3], "y": ROTATION[:, 3:]}, n_query=2, sign=-1)
    cfg = TransformerConfig(2, 2, 5, 3, init_std=0.3)
    first, second = HookedTransformer(cfg, plain).double(), HookedTransformer(cfg, rotated).double()
    with torch.no_grad():
        for block in second.blocks:
            for name in ("W_Q", "W_K", "W_V"):
                getattr(block.attn, name).copy_(ROTATION @ getattr(block.attn, name))
            block.attn.W_O.copy_(block.attn.W_O @ ROTATION.T)
    tokens = random_tokens()
    expected = first(tokens)
    assert torch.allclose(second(tokens @ ROTATION.T), expected, rtol=1e-12, atol=1e-12)
    there_and_back = second.float().double()(tokens @ ROTATION.T)
    assert torch.allclose(there_and_back, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(second.unembed(tokens), tokens @ rotated.reader)


def test_read_in_without_read_out_reads_through_the_layout_of_the_stream():
    layout = BlockLayout.standard(x=3, y=2, velocity=1, n_query=2, sign=-1)
    model = HookedTransformer(TransformerConfig(1, 1, 6, 6, d_in=5, init_std=0.3), layout).double()
    _, cache = model.run_with_cache(random_tokens())
    assert torch.allclose(model(random_tokens()), -cache["resid_post", 0][..., 3:5], rtol=1e-12)


def test_weights_come_from_the_seed_alone():
    cfg = dict(n_layers=2, n_heads=2, d_model=5, d_head=3)
    first, second, other = (HookedTransformer(TransformerConfig(**cfg, seed=seed), LAYOUT) for seed in (1, 1, 2))
    torch.manual_seed(0)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_initial_weights_have_the_size_asked_for():
    for init_std, expected in ((None, 0.8 / 5**0.5), (0.05, 0.05)):
        model = HookedTransformer(TransformerConfig(4, 4, 5, 40, init_std=init_std), LAYOUT)
        assert model.W_Q.std().item() == pytest.approx(expected, rel=0.05)
        assert model.W_O.std().item() == pytest.approx(expected, rel=0.05)


def test_building_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    HookedTransformer(TransformerConfig(1, 1, 5, 3), LAYOUT)
    assert torch.equal(before, torch.get_rng_state())


def test_a_copy_is_a_model_of_its_own():
    model, tokens = softmax_model(), random_tokens()
    clone = copy.deepcopy(model)
    clean = model(tokens)
    with torch.no_grad():
        clone.blocks[0].attn.W_Q.zero_()
    assert torch.equal(model(tokens), clean)
    assert not torch.allclose(clone(tokens), clean)


def test_weights_that_do_not_exist_cannot_be_written():
    attn = HookedTransformer(TransformerConfig(1, 1, 5, 3), LAYOUT).blocks[0].attn
    assert attn.b_Q is None
    assert attn.b_O is None


GOOD = softmax_model()
BAD_TOKENS = {
    "width": (random_tokens(4), r"takes tokens \[batch, token, 5\], with the columns {'x': 3, 'y': 1, 'flag': 1}"),
    "no batch": (random_tokens()[0], r"these have the shape \[9, 5\]"),
    "float32": (random_tokens(dtype=torch.float32), r"tokens are torch.float32 on cpu, the weights torch.float64"),
    "whole numbers": (random_tokens(dtype=torch.int64), r"tokens are torch.int64"),
    "no context": (random_tokens(rows=2), r"a prompt of 2 rows has no context: the layout takes 2 query rows"),
    "no rows": (random_tokens(rows=0), r"a prompt of 0 rows has no context"),
    "too long": (random_tokens(rows=13), r"the prompt has 13 rows, and the model has positions for 12"),
    "device": (torch.zeros(4, 9, 5, dtype=torch.float64, device="meta"), r"tokens are torch.float64 on meta"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
@pytest.mark.parametrize("method", ["forward", "predict", "run_with_cache"])
def test_tokens_that_do_not_fit_are_refused(name: str, method: str):
    tokens, message = BAD_TOKENS[name]
    with pytest.raises(ValueError, match=message):
        getattr(GOOD, method)(tokens)


def test_an_empty_batch_is_no_error():
    assert GOOD(random_tokens()[:0]).shape == (0, 9, 2)
    assert HookedTransformer(TransformerConfig(1, 2, 5, 3), LAYOUT).double()(random_tokens()[:0]).shape == (0, 9, 1)


BAD_LAYOUTS = {
    "narrow": (TransformerConfig(1, 1, 6, 3), LAYOUT, "the layout describes 5 columns .* residual stream has 6"),
    "tokens": (TransformerConfig(1, 1, 6, 3, d_in=4, d_out=1), LAYOUT, "the model's tokens have 4"),
    "sign": (
        TransformerConfig(1, 1, 5, 3, d_out=1),
        BlockLayout.standard(x=4, y=1, sign=-1),
        "sign -1 has no effect on a model with d_out=1",
    ),
    "heads": (
        TransformerConfig(1, 3, 5, 3),
        BlockLayout.standard(x=4, y=1, visibility=[Visibility()] * 2),
        "2 visibilities for a model of 3 heads",
    ),
}


@pytest.mark.parametrize("name", BAD_LAYOUTS)
def test_a_layout_that_does_not_fit_is_refused(name: str):
    cfg, layout, message = BAD_LAYOUTS[name]
    with pytest.raises(ValueError, match=message):
        HookedTransformer(cfg, layout)


def test_weights_in_memory_make_a_model():
    model, tokens = softmax_model(), random_tokens()
    again = HookedTransformer.from_weights(model.cfg, LAYOUT, model.state_dict())
    assert torch.equal(again(tokens), model(tokens))
    assert again.dtype == torch.float64


BAD_WEIGHTS = {
    "missing": (
        lambda w: w.pop("blocks.0.attn.W_Q"),
        "1 of the model's weights are missing, first 'blocks.0.attn.W_Q'",
    ),
    "extra": (lambda w: w.update(more=torch.zeros(1).double()), "have no place in the model, first 'more'"),
    "shape": (
        lambda w: w.update({"embed.W_E": torch.zeros(6, 5).double()}),
        r"has the shape \[6, 5\].* asks for \[5, 6\]",
    ),
    "nan": (lambda w: w["embed.W_E"].fill_(torch.nan), "'embed.W_E' holds NaN or infinite values"),
    "inf": (lambda w: w["unembed.b_U"].fill_(-torch.inf), "'unembed.b_U' holds NaN or infinite values"),
    "dtypes": (lambda w: w.update({"embed.W_E": torch.zeros(5, 6)}), "must share one floating dtype"),
    "whole numbers": (lambda w: w.update({k: v.long() for k, v in w.items()}), "must share one floating dtype"),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(name: str):
    spoil, message = BAD_WEIGHTS[name]
    weights = {key: value.clone() for key, value in GOOD.state_dict().items()}
    spoil(weights)
    with pytest.raises(ValueError, match=message):
        HookedTransformer.from_weights(GOOD.cfg, LAYOUT, weights)
