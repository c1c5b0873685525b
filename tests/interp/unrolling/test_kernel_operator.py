"""Kernel-operator words: what is built in is read off, two roads agree, and what is something else has no name."""

import json
from copy import deepcopy

import pytest
import torch

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from interp.unrolling import kernel_operators
from interp.unrolling.kernel_operator_form import NotRichardson, richardson_form
from interp.unrolling.kernel_operator_mlp import read_mlp
from models.constructions import PromptShape, richardson
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer, TransformerConfig

N, LAM, H = 8, 2.0, 0.4
PROMPTS = GaussianProcess(n=N, d=2, n_query=2, lengthscale=H).sample(12, seed=0)
SHAPE = PromptShape(2, n_query=2, n=N)


def built(**options):
    return richardson(SHAPE, **{"lam": LAM, "bandwidth": H, "steps": 4, "m": 128, "y_max": 5.0, **options})


PLAIN = built()
TOKENS = PLAIN.tokens(PROMPTS)
RULE = kernel_operators(PLAIN.model, prompts=TOKENS)


def test_the_heads_are_a_gaussian_with_a_token_of_constant_score():
    for index, layer in enumerate(RULE.layers):
        head = layer.heads[0]
        assert head.bandwidth == pytest.approx(H, rel=1e-9) and head.shift == pytest.approx(LAM, rel=1e-9)
        assert head.coefficients == {("bos", "p"): 1.0} if index == 0 else {("alpha", "s"): 1.0}


def test_the_rule_is_the_forward_pass_on_other_prompts():
    others = GaussianProcess(n=5, d=2, n_query=2, lengthscale=H).sample(6, seed=9)
    found = RULE.predict(PLAIN.tokens(others))
    torch.testing.assert_close(found, PLAIN.predict(others), rtol=0, atol=1e-2)
    assert RULE.output is not None and RULE.output.max_relative_error < 1e-2 and len(RULE.by_layer) == 5


@pytest.mark.parametrize(("tracked", "omega", "shift"), [(True, 0.7, None), (False, 1.0, 0.5)])
def test_the_iteration_is_read_with_its_numbers(tracked: bool, omega: float, shift: float | None):
    construction = built(omega=omega, shift=shift, tracked=tracked, m=512)
    form = richardson_form(kernel_operators(construction.model, prompts=TOKENS))
    found = (form.omega, form.lam, form.bandwidth, form.shift)
    assert found == pytest.approx((omega, LAM, H, shift or LAM), rel=5e-3)
    assert (form.steps, form.tracked) == (4, tracked)


def test_a_rotated_stream_is_the_same_model():
    layout = PLAIN.model.layout
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    columns = {name: turn @ basis for name, basis in layout.columns.items()}
    turned = BlockLayout(columns, n_query=2, readout="out", visibility=layout.visibility)
    weights = {name: value.clone() for name, value in PLAIN.model.state_dict().items()}
    for name in weights:
        if name.endswith(("W_Q", "W_K", "W_V", "W_in")):
            weights[name] = turn @ weights[name]
        elif name.endswith(("W_O", "W_out", "b_out")):
            weights[name] = weights[name] @ turn.T
    model = HookedTransformer.from_weights(PLAIN.model.cfg, turned, weights)
    form = richardson_form(kernel_operators(model, prompts=TOKENS @ turn.T))
    assert form.lam == pytest.approx(LAM, rel=1e-2) and form.bandwidth == pytest.approx(H, rel=1e-6)


def test_text_and_json_say_the_update_rule():
    said = str(RULE)
    for part in ("α ← α + (c − P⁻¹K α − p ⊙ α), 4 steps", "h = 0.4", "λ = 2", "layers 1–3", "certificate on 6 prompts"):
        assert part in said
    plain = json.loads(json.dumps(RULE.to_dict()))
    assert plain["update_rule"]["lam"] == pytest.approx(LAM, rel=1e-2)
    assert plain["layers"][1]["mlp"]["alpha"]["terms"].keys() == {"c", "s", "p ⊙ alpha"}


def spoilt(layer: int, weight: str, column: str, factor: float):
    model = deepcopy(PLAIN.model)
    matrix, at = getattr(model.blocks[layer].mlp, weight).data, model.layout.slices[column]
    matrix[at if weight == "W_in" else (slice(None), at)] *= factor
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (spoilt(2, "W_out", "alpha", -1.0), "layer 2: alpha"),
        (spoilt(3, "W_in", "c", 0.0), "layer 3: alpha"),
        (spoilt(1, "W_out", "alpha", 0.5), "layer 1: alpha"),
        (spoilt(0, "W_out", "w", 1.1), "layer 0: its MLP does not write"),
        (spoilt(2, "W_out", "s", 0.0), "layer 2: its MLP writes nothing to s"),
        (built(causal=True).model, "layer 0: head 0 lets context rows see itself and every row before it"),
    ],
)
def test_what_is_something_else_has_no_name(model: HookedTransformer, said: str):
    rule = kernel_operators(model, prompts=TOKENS)
    with pytest.raises(NotRichardson, match=said):
        richardson_form(rule)
    assert "no update rule has a name here: layer" in str(rule)


def test_a_function_of_no_such_terms_is_stated_as_left_out():
    layout = BlockLayout.standard(x=1, y=1, a=1)
    rows = torch.rand(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = read_mlp(lambda u: torch.stack([u[:, 2] * u[:, 1], (9 * u[:, 2]).sin(), 0 * u[:, 0]], dim=1), rows, layout)
    assert found["x"].terms == {("y", "a"): pytest.approx(1.0)} and found["x"].named
    assert not found["y"].named and "a" not in found


def softmax_model(**options) -> HookedTransformer:
    layout = BlockLayout.standard(x=2, y=1, n_query=1, visibility=Visibility("context", "context"))
    cfg = TransformerConfig(2, 2, 3, 3, kernel=AttentionKernel("exp", "sum"), **options)
    return HookedTransformer(cfg, layout).double()


def test_attention_alone_is_read_without_prompts_and_exact():
    model = softmax_model()
    tokens = torch.randn(6, 8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rule = kernel_operators(model)
    torch.testing.assert_close(rule.predict(tokens), model.predict(tokens), rtol=1e-10, atol=1e-10)
    assert rule.output is None and "score u M u'" in str(rule)
    certified = kernel_operators(model, prompts=tokens)
    assert certified.output is not None and certified.output.max_relative_error < 1e-10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"normalization_type": "LN"}, "it has norms"),
        ({"use_biases": True}, "its attention has biases"),
        ({"d_in": 3}, "learned read-in"),
        ({"attn_only": False, "d_mlp": 4}, "pass some"),
    ],
)
def test_models_without_such_words_are_refused(options, said: str):
    with pytest.raises(ValueError, match=f"cannot put this model in words: .*{said}"):
        kernel_operators(softmax_model(**options))


def test_other_kernels_and_too_few_prompts_are_refused():
    layout = BlockLayout.standard(x=2, y=1)
    linear = HookedTransformer(TransformerConfig(1, 1, 3, 3), layout)
    with pytest.raises(ValueError, match="attention kernel is linear; take `unroll`"):
        kernel_operators(linear)
    with pytest.raises(ValueError, match="at least two prompts"):
        kernel_operators(PLAIN.model, prompts=TOKENS[:1])
