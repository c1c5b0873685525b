"""Frozen models against formulas in plain torch with detached scales, gates and patterns; maps against jvp."""

import pytest
import torch
from torch.func import jacrev, jvp

from interp.hooks import capture
from interp.layout import BlockLayout
from interp.linearisation import freeze, linearise, validity
from interp.linearisation.validity import OTHER_QUERY, with_other_queries
from tests.interp.linearisation.models_of_kinds import KINDS, SOFTMAX, built, prompts

ALL = ("norms", "gates", "patterns")
EVERY = pytest.mark.parametrize("kind", KINDS)


def detached(model, z, freeze_patterns=False):
    """The forward pass of `models.transformer` written again in plain torch, with scales, gates, patterns detached."""

    def norm(module, z):
        z = z - z.mean(-1, keepdim=True)
        return z / (z.square().mean(-1, keepdim=True) + module.eps).sqrt().detach() * module.w + module.b

    def affine(u, W, b):
        return torch.einsum("btd,hde->bhte", u, W) + (0 if b is None else b[:, None])

    cfg = model.cfg
    z = z if cfg.d_in is None else z @ model.embed.W_E + model.embed.b_E
    allowed = model.layout.allowed(z.shape[1], cfg.n_heads)
    for block in model.blocks:
        u, attn = norm(block.ln1, z) if cfg.normalization_type else z, block.attn
        q, k, v = (affine(u, getattr(attn, f"W_{n}"), getattr(attn, f"b_{n}")) for n in "QKV")
        scores = q @ k.mT
        if cfg.kernel == SOFTMAX:
            pattern = (scores / cfg.d_head**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
        else:
            pattern = scores * allowed
        pattern = pattern.detach() if freeze_patterns else pattern
        z = z + torch.einsum("bhtk,bhke,hed->btd", pattern, v, attn.W_O) + (0 if attn.b_O is None else attn.b_O)
        if block.mlp is not None:
            pre = (norm(block.ln2, z) if cfg.normalization_type else z) @ block.mlp.W_in + block.mlp.b_in
            z = z + tangent(cfg.act_fn, pre) @ block.mlp.W_out + block.mlp.b_out
        z = norm(block.ln_post, z) if cfg.post_norm else z
    if cfg.d_out is None:
        return model.layout.predict(z)
    z = z if cfg.post_norm or not cfg.normalization_type else norm(model.ln_final, z)
    return (z @ model.unembed.W_U + model.unembed.b_U)[:, -1:]


def tangent(act_fn, pre):
    """f(u₀) + f′(u₀)(u − u₀) at u₀ = u: the value and the derivative of the activation, by their formulas."""
    at = pre.detach()
    if act_fn == "relu":
        return (at > 0) * pre
    normal = torch.distributions.Normal(0.0, 1.0)
    slope = normal.cdf(at) + at * normal.log_prob(at).exp()
    return at * normal.cdf(at) + slope * (pre - at)


@EVERY
@pytest.mark.parametrize("parts", [("norms", "gates"), ALL])
def test_frozen_is_the_model_at_its_prompts(kind: str, parts):
    model, tokens = built(**KINDS[kind]), prompts()
    found = linearise(model, tokens, parts=parts)
    answer = model.predict(tokens).detach()
    torch.testing.assert_close(found.frozen(tokens), answer, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.affine.value, answer, rtol=1e-10, atol=1e-12)
    assert found.error_at_the_point < 1e-12


@EVERY
@pytest.mark.parametrize("parts", [("norms", "gates"), ALL])
def test_the_frozen_slope_is_the_jacobian_with_detached_scales_gates_and_patterns(kind: str, parts):
    model, tokens = built(**KINDS[kind]), prompts()
    slope = linearise(model, tokens, parts=parts).affine.slope
    for i in range(len(tokens)):
        known = jacrev(lambda z: detached(model, z[None], "patterns" in parts)[0])(tokens[i]).detach()
        torch.testing.assert_close(slope[i], known, rtol=1e-9, atol=1e-10)


@EVERY
def test_the_tangent_is_the_jvp_of_the_model(kind: str):
    model, tokens = built(**KINDS[kind]), prompts()
    along = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = linearise(model, tokens).tangent
    known = jvp(model.predict, (tokens,), (along,))[1].detach()
    torch.testing.assert_close(found(tokens + along) - found.value, known, rtol=1e-9, atol=1e-10)


@EVERY
def test_with_everything_frozen_the_model_is_its_affine_map(kind: str):
    model, tokens = built(**KINDS[kind]), prompts()
    found = linearise(model, tokens, parts=ALL)
    far = prompts(seed=7)
    torch.testing.assert_close(found.affine(far), found.frozen(far), rtol=1e-9, atol=1e-9)
    assert (found.frozen(far) - model.predict(far)).abs().max() > 1e-2


def test_relu_is_exact_until_a_gate_changes_and_gelu_is_first_order():
    tokens = prompts()
    relu = linearise(built(**KINDS["ReLU"]), tokens)
    near = tokens + 1e-6 * prompts(seed=4)
    assert relu.frozen.gates_changed(near) == 0
    torch.testing.assert_close(relu.frozen(near), relu.frozen.model_answer(near), rtol=1e-12, atol=1e-13)
    assert relu.left_out < 1e-12 and "exact until a gate changes" in str(relu)
    far = tokens + prompts(seed=4)
    pre = [f"blocks.{layer}.mlp.hook_pre" for layer in range(2)]
    before, after = (capture(relu.frozen.asked.model, z, pre) for z in (tokens, far))
    changed = torch.stack([(before[name] > 0) != (after[name] > 0) for name in pre]).double().mean().item()
    assert relu.frozen.gates_changed(far) == pytest.approx(changed) and changed > 0

    gelu = freeze(built(attn_only=False, d_mlp=7, act_fn="gelu"), tokens)
    errors = []
    for size in (1e-3, 1e-4):
        near = tokens + size * prompts(seed=4)
        errors.append((gelu(near) - gelu.model_answer(near)).norm().item())
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)
    assert "first order in each unit" in gelu.summary()


def test_the_map_of_the_query_row():
    model, tokens = built(**KINDS["linear attention with norms"]), prompts()
    found = linearise(model, tokens)
    slope, constant = found.affine.of_query()
    other = tokens.clone()
    other[:, -1] += torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    by_row = torch.einsum("pow,pw->po", slope, other[:, -1]) + constant
    torch.testing.assert_close(by_row, found.affine(other)[:, 0], rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="none of the 1 query rows"):
        found.affine.of_query(1)


def test_validity_rows_are_the_errors_of_the_moved_prompts():
    model, tokens = built(**KINDS["norms of the stream"]), prompts(count=8)
    found = linearise(model, tokens)
    table = validity(found, distances=(0.01, 0.1))
    row = next(row for row in table.rows if (row.move, row.distance) == ("labels × (1 + distance)", 0.1))
    moved = tokens.clone()
    moved[:, :-1, 3] *= 1.1
    start, change = model.predict(tokens).detach(), model.predict(moved).detach()
    size = (change - start).norm()
    assert row.frozen == pytest.approx(((found.frozen(moved) - change).norm() / size).item(), rel=1e-9)
    assert row.affine == pytest.approx(((found.affine(moved) - change).norm() / size).item(), rel=1e-9)
    assert row.tangent == pytest.approx(((found.tangent(moved) - change).norm() / size).item(), rel=1e-9)
    assert row.moved == pytest.approx((size / change.norm()).item(), rel=1e-9)
    swapped = table.rows[-1]
    assert swapped.move == OTHER_QUERY
    other = with_other_queries(tokens, model.layout)
    torch.testing.assert_close(other[1, -1], tokens[0, -1])
    error = (found.frozen(other) - model.predict(other)).norm() / model.predict(other).norm()
    assert swapped.frozen_value == pytest.approx(error.item(), rel=1e-9)
    assert "within 10%" in str(table) and table.to_dict()["reach"]


def test_moves_have_the_length_they_say_and_the_reach_is_the_last_distance_that_holds():
    from interp.linearisation.validity import standard_moves

    model, tokens = built(**KINDS["ReLU"]), prompts()
    moves = standard_moves(model.layout)
    moved = moves["query, random direction"](tokens, 0.3, torch.Generator().manual_seed(0)) - tokens
    assert torch.equal(moved[:, :-1], torch.zeros_like(moved[:, :-1])) and not moved[:, -1, 3].any()
    torch.testing.assert_close(moved.flatten(1).norm(dim=1), 0.3 * tokens[:, -1, :3].norm(dim=1))
    table = validity(linearise(model, tokens), distances=(1e-8, 1e-7, 3.0))
    assert table.reach("whole prompt, random direction", "tangent") == 1e-7


def test_what_cannot_be_frozen_is_said():
    tokens = prompts()
    with pytest.raises(ValueError, match="unknown part 'heads'"):
        freeze(built(), tokens, parts=("heads",))
    with pytest.raises(ValueError, match="no hooked model"):
        freeze(torch.nn.Linear(2, 2), tokens)
    with pytest.raises(ValueError, match="must be continuous tokens"):
        freeze(built(), torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="NaN or inf"):
        freeze(built(), tokens * torch.nan)
    with pytest.raises(ValueError, match="2 query rows"):
        freeze(built(), tokens, BlockLayout.standard(x=3, y=1, n_query=2))
    frozen = freeze(built(**KINDS["ReLU"]), tokens)
    with pytest.raises(ValueError, match="frozen values of its own"):
        frozen(tokens[:2])
    with pytest.raises(ValueError, match="positive numbers"):
        validity(linearise(built(), tokens), distances=(0.0,))


def test_a_model_without_the_hook_points_is_refused_in_a_sentence():
    model = built(**KINDS["GELU and norms"])
    for name in [name for name in model.hook_dict if name.endswith("hook_scale")]:
        del model.hook_dict[name]
    with pytest.raises(ValueError, match=r"no hook point '….hook_scale'"):
        freeze(model, prompts())
    model = built(**KINDS["ReLU"])
    del model.hook_dict["blocks.1.mlp.hook_post"]
    with pytest.raises(ValueError, match=r"no hook point 'blocks.1.mlp.hook_post'"):
        freeze(model, prompts())


def test_a_model_that_ignores_edits_is_refused():
    model = built(**KINDS["norms of the stream"])
    run = model.run_with_hooks
    model.run_with_hooks = lambda tokens, fwd_hooks=(), **other: run(tokens, fwd_hooks=[])
    with pytest.raises(ValueError, match="does not move the answer"):
        freeze(model, prompts())
