"""The rule of linear attention with frozen norms, from weights and scales alone, against the forward pass."""

import pytest
import torch

from interp import unroll
from interp.kernels import AttentionKernel
from interp.linearisation import freeze
from interp.linearisation.frozen_rule import mean_scales, unroll_frozen
from tests.interp.linearisation.models_of_kinds import KINDS, SOFTMAX, built, prompts

NORMED = ("linear attention with norms", "norms of the stream")


@pytest.mark.parametrize("kind", NORMED)
@pytest.mark.parametrize("visibility", ["causal", "context", "all"])
@pytest.mark.parametrize("scale", ["none", "n", "sqrt_d_head"])
def test_with_a_prompts_own_scales_it_is_the_model(kind: str, visibility: str, scale: str):
    model = built(visibility=visibility, **{**KINDS[kind], "kernel": AttentionKernel(scale=scale)})
    tokens = prompts()
    rule, values = unroll_frozen(model), freeze(model, tokens, parts=("norms",)).values
    torch.testing.assert_close(rule.predict(tokens, values), model.predict(tokens).detach(), rtol=1e-10, atol=1e-11)
    assert set(rule.scale_points) == set(values)


@pytest.mark.parametrize("kind", NORMED)
def test_with_other_scales_it_is_the_frozen_model(kind: str):
    """Two roads to a frozen model at another prompt: hooks in the forward pass, and the rule from the weights."""
    model, tokens, other = built(**KINDS[kind]), prompts(), prompts(seed=8)
    frozen = freeze(model, tokens, parts=("norms",))
    by_rule = unroll_frozen(model).predict(other, frozen.values)
    torch.testing.assert_close(by_rule, frozen(other), rtol=1e-10, atol=1e-11)
    assert (by_rule - model.predict(other)).abs().max() > 1e-2


def test_read_out_through_a_layout():
    model, tokens = built(sign=-1.0, normalization_type="LN"), prompts()
    values = freeze(model, tokens, parts=("norms",)).values
    torch.testing.assert_close(
        unroll_frozen(model).predict(tokens, values), model.predict(tokens).detach(), rtol=1e-10, atol=1e-11
    )


def test_without_norms_it_is_the_plain_rule():
    model, tokens = built(), prompts()
    found, plain = unroll_frozen(model), unroll(model)
    torch.testing.assert_close(found.predict(tokens, {}), plain.predict(tokens, "exact"), rtol=1e-10, atol=1e-12)


def test_one_scale_for_all_prompts_is_one_model_for_all():
    model, tokens = built(**KINDS["norms of the stream"]), prompts()
    rule, values = unroll_frozen(model), freeze(model, tokens, parts=("norms",)).values
    means = mean_scales(values)
    alone = torch.cat([rule.predict(one[None], means) for one in tokens])
    torch.testing.assert_close(rule.predict(tokens, means), alone, rtol=1e-12, atol=1e-13)
    assert "Q̂" in str(rule) and all(0 <= share <= 1 for share in rule.words_explain())


def test_words_are_all_of_an_equivariant_layer_and_not_of_one_behind_a_centring_norm():
    """Q = diag(I, 0), V = diag(0, γ): without a norm one word says all; centring mixes the coordinates of x and y."""
    tokens = prompts()
    for options, whole in [({}, True), ({"normalization_type": "LN"}, False)]:
        model = built(layers=1, **options)
        attn, eye = model.blocks[0].attn, torch.eye(3, dtype=torch.float64)
        with torch.no_grad():
            for weight in (attn.W_Q, attn.W_K, attn.W_V, attn.W_O):
                weight.zero_()
            attn.W_Q[0, :3], attn.W_K[0, :3], attn.W_V[0, 3, 0], attn.W_O[0, 0, 3] = eye, eye, 1, 0.7
        rule, values = unroll_frozen(model), freeze(model, tokens, parts=("norms",)).values
        gap = (rule.predict(tokens, values, "words") - rule.predict(tokens, values)).abs().max()
        assert (rule.words_explain()[0] > 1 - 1e-12, bool(gap < 1e-12)) == (whole, whole)


def test_what_is_no_linear_attention_is_refused():
    for options, reason in [
        ({"kernel": SOFTMAX}, "softmax"),
        (KINDS["ReLU"], "MLPs"),
        ({"use_biases": True}, "bias"),
        ({"d_in": 4, "d_out": 1}, "read-in"),
    ]:
        with pytest.raises(ValueError, match=reason):
            unroll_frozen(built(**options))
    rule, tokens = unroll_frozen(built(normalization_type="LN")), prompts()
    with pytest.raises(ValueError, match="needs the scales"):
        rule.predict(tokens, {})
    with pytest.raises(ValueError, match="no level 'core'"):
        rule.predict(tokens, {}, "core")
