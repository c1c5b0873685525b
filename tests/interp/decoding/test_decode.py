import dataclasses
import json
from dataclasses import replace

import pytest
import torch

from interp.decoding import decode
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.constructions.disguises import rotated
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer
from tests.builders import eagle_model, random_model, random_tokens

FAMILY = LogUniformSpectrum(n=8, d=3, n_query=2, d_out=2, kappa=4)
PROMPTS = FAMILY.sample(4, seed=0)
SOFTMAX = TransformerConfig(
    2,
    2,
    12,
    6,
    kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
    attn_only=False,
    d_mlp=20,
    act_fn="gelu",
    normalization_type="LN",
    use_biases=True,
    positional_embedding_type="standard",
    n_ctx=12,
    d_in=5,
    d_out=2,
)


@pytest.fixture(scope="module")
def softmax() -> HookedTransformer:
    return HookedTransformer(SOFTMAX, BlockLayout.standard(x=3, y=2, n_query=2)).double()


def test_a_rotated_stream_is_the_same_model():
    model = random_model(3, 2, layers=3, heads=2, seed=0)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    other = rotated(model, turn)
    u = random_tokens(model, 3, n=6, seed=2)
    plain, turned = decode(model, u), decode(other, u @ other.layout.basis.T)
    torch.testing.assert_close(turned.weights, plain.weights, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(turned.mixed, plain.mixed, rtol=1e-9, atol=1e-12)
    assert turned.agreement.max() < 1e-10 and turned.mixed_agreement.max() < 1e-10


@pytest.mark.parametrize("scale", ["none", "n"])
def test_the_label_derivatives_are_finite_differences(scale: str):
    model = random_model(3, 2, layers=2, heads=2, seed=3, scale=scale, size=0.3)
    tokens, step = random_tokens(model, 2, n=6, seed=4), 1e-5
    found = decode(model, tokens)
    for row, label in ((0, 0), (4, 1)):
        shift = torch.zeros_like(tokens)
        shift[:, row, 3 + label] = step
        above, below = decode(model, tokens + shift), decode(model, tokens - shift)
        slope = (above.weights - below.weights) / (2 * step)
        torch.testing.assert_close(found.mixed[..., row, label], slope, rtol=1e-6, atol=1e-8)
        moved = (model.predict(tokens + shift) - model.predict(tokens - shift))[:, 0] / (2 * step)
        torch.testing.assert_close(found.label_sensitivity[-1][..., row, label], moved, rtol=1e-6, atol=1e-8)


def test_machines_have_weights_and_no_single_hessian():
    rules = (Visibility("machine", "none"), Visibility("none", "context"))
    model = random_model(3, 2, layers=2, heads=2, seed=5, visibility=rules)
    found = decode(model, random_tokens(model, 3, n=6, seed=6))
    assert found.hessian is None and found.closed_form is None and "no single G" in found.undefined["inverse Hessian"]
    assert found.agreement.max() < 1e-10 and found.mixed_agreement.max() < 1e-10
    assert "no single G" in " ".join(str(found).split()) and found.to_dict()["spectra"] == []
    assert {entry["inverse_hessian_relative_error"] for entry in found.by_depth()} == {None}


def test_contributions_are_shares_of_the_prediction():
    model = eagle_model([-1.2, -2.0], [1.2, 2.0], FAMILY.layout(), noise=1e-2)
    found = decode(model, PROMPTS)
    for layer in found.contributions:
        assert {"z_x S_xy → y", "rest"} <= set(layer)
    shares = found.shares()
    assert sum(value for layer in shares for value in layer.values()) == pytest.approx(1, abs=1e-12)
    assert found.contributions[0]["read-out of the input"].abs().max() == 0
    assert "read-out of the input" not in str(found)
    silent = eagle_model([-1.2, -2.0], [1.2, 0.0], FAMILY.layout())
    assert decode(silent, PROMPTS).shares()[1]["z_x S_xy → y"] == 0


def test_shares_are_pooled_over_prompts():
    """By their definition, and one prompt with an answer near 0 does not drown the others."""
    model, tokens = eagle_model([-1.2, -2.0], [1.2, 2.0], FAMILY.layout(), noise=1e-2), PROMPTS.tokens.clone()
    tokens[0, :, :3] *= 1e-3
    found = decode(model, tokens)
    f = model.double().predict(tokens).detach()
    expected = (found.contributions[1]["z_x S_xy → y"] * f).sum() / f.square().sum()
    assert found.shares()[1]["z_x S_xy → y"] == pytest.approx(expected.item(), rel=1e-10)
    assert f[0].norm() < 1e-4 * f[1:].norm()
    without = decode(model, tokens[1:]).shares()[1]["z_x S_xy → y"]
    assert found.shares()[1]["z_x S_xy → y"] == pytest.approx(without, rel=1e-6)


def test_an_input_that_is_read_out_is_a_contribution_of_its_own():
    """Query rows whose y is not 0: the prediction starts from it."""
    model, tokens = eagle_model([-1.2, -2.0], [1.2, 2.0], FAMILY.layout(), noise=1e-2), PROMPTS.tokens.clone()
    tokens[:, -2:, 3:] = 0.5
    found = decode(model, tokens)
    assert (found.contributions[0]["read-out of the input"] == -0.5).all() and "read-out of the input" in str(found)
    total = sum(part for layer in found.contributions for part in layer.values())
    torch.testing.assert_close(total, model.double().predict(tokens).detach(), rtol=1e-10, atol=1e-12)


def test_a_softmax_model_is_decoded_locally(softmax: HookedTransformer):
    found = decode(softmax, PROMPTS, radius=0.01)
    assert found.by_rule is None and "softmax" in found.undefined["exact rule"] and not found.is_linear
    step, last = 1e-6, len(PROMPTS.tokens[0]) - 2
    for column in range(3):
        shift = torch.zeros_like(PROMPTS.tokens)
        shift[:, last, column] = step
        slope = (softmax.predict(PROMPTS.tokens + shift) - softmax.predict(PROMPTS.tokens - shift))[:, 0] / (2 * step)
        torch.testing.assert_close(found.weights[-1][:, column], slope.detach(), rtol=1e-5, atol=1e-7)
    further = decode(softmax, PROMPTS, radius=0.1)
    assert (further.nonlinearity[1:] > 2 * found.nonlinearity[1:]).all()
    assert [set(layer) for layer in found.contributions] == [{"read-out of the input", "layer"}, {"layer"}]
    assert "NOT linear" in str(found) and "w against unit vectors" in str(found)
    assert "roads to w apart" not in str(found) and "interp.hooks" not in str(found)
    named = [entry["local_jacobian_against_unit_vectors"] for entry in found.by_depth()]
    assert named == found.agreement.amax(1).tolist() and "agreement" not in found.by_depth()[0]


def test_the_other_query_is_another_place(softmax: HookedTransformer):
    first, second = decode(softmax, PROMPTS), decode(softmax, PROMPTS, query=1)
    assert not torch.allclose(first.weights[-1], second.weights[-1], rtol=1e-3)
    model = random_model(3, 2, layers=2, heads=2, seed=0)
    tokens = random_tokens(model, 2, n=6, seed=1)
    torch.testing.assert_close(decode(model, tokens).weights, decode(model, tokens, query=1).weights)


@pytest.mark.parametrize("rule", [Visibility("context", "context_and_self"), Visibility("causal", "causal")])
def test_queries_that_see_themselves_are_not_linear(rule: Visibility):
    model = random_model(3, 2, layers=2, heads=1, seed=7, visibility=rule, size=0.3)
    found = decode(model, random_tokens(model, 3, n=6, seed=8))
    assert found.by_rule is None and not found.is_linear and "depend on the query" in found.undefined["exact rule"]


def test_context_that_sees_the_queries_has_no_exact_rule():
    model = random_model(3, 2, layers=2, heads=1, seed=7, visibility=Visibility("all", "context"), size=0.3)
    found = decode(model, random_tokens(model, 3, n=6, seed=8))
    assert found.undefined["exact rule"] == "none, because in layer 0 context rows see the query rows"


def test_text_and_plain_values_say_the_same():
    model = eagle_model([-1.2, -2.0, -3.0], [1.2, 2.0, 3.0], FAMILY.layout(), noise=1e-2)
    found = decode(model, PROMPTS)
    values = json.loads(json.dumps(found.to_dict()))
    assert [entry["depth"] for entry in values["depths"]] == [0, 1, 2, 3]
    assert values["depths"][0]["w_relative_error"] == 1 and values["depths"][0]["inverse_hessian_relative_error"] == 1
    row = next(text for text in str(found).splitlines() if "w against least squares" in text)
    assert [float(cell) for cell in row.split()[-4:]] == pytest.approx(
        [entry["w_relative_error"] for entry in values["depths"]], rel=1e-2
    )
    assert all(len(text) <= 100 for text in str(found).splitlines())
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.radius = 1.0


LINEAR = random_model(3, 2, layers=2, heads=1, seed=9)
TOKENS = random_tokens(LINEAR, 2, n=6, seed=10)


def _with(value: float, row: slice, columns: slice) -> torch.Tensor:
    tokens = TOKENS.clone()
    tokens[:, row, columns] = value
    return tokens


def _broken() -> HookedTransformer:
    model = random_model(3, 2, layers=2, heads=1, seed=9)
    with torch.no_grad():
        model.blocks[1].attn.W_V[0, 0, 0] = torch.nan
    return model


def _swapped() -> dict[str, torch.Tensor]:
    eye = torch.eye(5).double()
    return {"x": eye[:, 2:], "y": eye[:, :2]}


BAD = {
    "NaN prompt": (lambda: decode(LINEAR, _with(torch.nan, slice(0, 1), slice(0, 1))), "prompts hold NaN or inf"),
    "empty prompts": (lambda: decode(LINEAR, TOKENS[:0]), "at least one prompt"),
    "no tensor": (lambda: decode(LINEAR, [[1.0]]), "got a list"),
    "another width": (lambda: decode(LINEAR, TOKENS[..., :4]), "has 5 columns .*prompts 4"),
    "another layout": (
        lambda: decode(LINEAR, torch.ones(2, 8, 6), BlockLayout.standard(x=4, y=2, n_query=2)),
        "layout describes 6 columns .* tokens have 5",
    ),
    "fewer queries": (
        lambda: decode(LINEAR, TOKENS, BlockLayout.standard(x=3, y=2, n_query=1)),
        "layout given has 1 query rows .* the model's own 2 query rows",
    ),
    "other blocks": (
        lambda: decode(LINEAR, TOKENS, BlockLayout.standard(x=2, y=3, n_query=2)),
        r"blocks \{'x': 2, 'y': 3\}.* the model's own .*\{'x': 3, 'y': 2\}",
    ),
    "other columns": (
        lambda: decode(LINEAR, TOKENS, replace(LINEAR.layout, columns=_swapped())),
        "from other columns; pass none",
    ),
    "read in, not out": (
        lambda: decode(
            HookedTransformer(TransformerConfig(1, 1, 5, 4, d_in=5), BlockLayout.standard(x=3, y=2, n_query=2)), TOKENS
        ),
        "read in by learned weights but read out through the layout",
    ),
    "no layout": (lambda: decode(torch.nn.Linear(2, 2), TOKENS), "Linear is no hooked model"),
    "zero labels": (lambda: decode(LINEAR, _with(0, slice(0, 6), slice(3, 5))), "weights of prompt 0 are 0"),
    "zero inputs": (lambda: decode(LINEAR, _with(0, slice(0, 6), slice(0, 3))), "inputs are all 0"),
    "zero query": (lambda: decode(LINEAR, _with(0, slice(6, 8), slice(0, 3))), "query is 0"),
    "no such query": (lambda: decode(LINEAR, TOKENS, query=2), "query=2 is none of the 2"),
    "radius": (lambda: decode(LINEAR, TOKENS, radius=0), "radius=0 must be positive"),
    "NaN weight": (lambda: decode(_broken(), TOKENS), r"blocks\.1\.attn\.W_V holds NaN"),
    "overflow": (lambda: decode(LINEAR, 1e200 * TOKENS), "prompt 0 are NaN or infinite at depth"),
    "no context": (lambda: decode(LINEAR, TOKENS[:, :2]), "has no context"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_in_a_sentence(case: str):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("sign", [1.0, 2.0, -0.5])
def test_the_sign_of_the_read_out_belongs_to_the_weights(sign: float):
    layout = BlockLayout.standard(x=3, y=2, n_query=2, sign=sign)
    found = decode(eagle_model([-1.2, -2.0], [1.2, 2.0], layout), PROMPTS)
    usual = decode(eagle_model([-1.2, -2.0], [1.2, 2.0], FAMILY.layout()), PROMPTS)
    torch.testing.assert_close(found.weights, -sign * usual.weights, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.hessian.s, -sign * usual.hessian.s, rtol=1e-10, atol=1e-12)
    assert found.closed_form.weights.max() < 1e-10 and found.closed_form.spectrum.max() < 1e-10
