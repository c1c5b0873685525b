import json

import pytest
import torch
from torch import nn

from interp.ablation import Reference, ablate, ablate_head, check_pattern_edits, swapped
from interp.comparison import compare
from interp.covariance import Covariance
from interp.hooks import capture, float64_copy, hook_name, reads_vocabulary
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from interp.probes import probe
from interp.protocol import Continuous, NotRebuilt, check_protocol, plain_forward, signs_of_processing
from interp.unrolling import unroll
from models.config import TransformerConfig
from models.transformer import HookedTransformer
from tests.transformer_lens_models import (
    BARE,
    FOUR,
    ONLY_FOUR,
    gpt2_bridge,
    native_bridge,
    own_model,
    rows,
    shaken,
    without_biases,
    words,
)

LAYOUT = BlockLayout.standard(x=3, y=2, rest=1, n_query=2)
ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 2}
only_four = pytest.mark.skipif(not FOUR, reason=ONLY_FOUR)
only_three = pytest.mark.skipif(FOUR, reason="about the classes of transformer-lens 3; its suite runs this")


def ours(**settings) -> HookedTransformer:
    layout = BlockLayout.standard(x=3, y=2, rest=1, n_query=2, visibility=Visibility("context", "context_and_self"))
    cfg = TransformerConfig(2, 2, 6, 3, **settings)
    return shaken(HookedTransformer(cfg, layout).double())


@pytest.mark.parametrize("settings", [{}, BARE, {"normalization_type": "LNPre"}, {"act_fn": "relu"}])
def test_a_model_of_transformer_lens_agrees_with_its_weights(settings: dict):
    for model, bound in ((own_model(**settings), 1e-5), (float64_copy(own_model(**settings)), 1e-12)):
        found = check_protocol(model, words())
        assert found.parity is not None and found.parity <= bound and found.agrees and found.takes_edits
    assert "transformer-lens" in found.kind and found.dtype == "float64"


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": AttentionKernel("linear")},
        {"kernel": AttentionKernel("relu", "sum", "n"), "attn_only": False, "d_mlp": 5, "use_biases": True},
        {"kernel": AttentionKernel("exp", "sum"), "normalization_type": "LN", "d_out": 2, "d_in": 6},
        {"kernel": AttentionKernel("exp", "sum"), "positional_embedding_type": "standard", "n_ctx": 10},
    ],
)
def test_our_models_agree_with_their_weights(settings: dict):
    found = check_protocol(ours(**settings), rows())
    assert found.parity is not None and found.parity <= 1e-12
    assert found.processed == () and found.asks["probe"] == "" and found.asks["kernel swaps"] == ""


@only_four
def test_a_bridge_around_a_gpt2():
    found = check_protocol(gpt2_bridge(), words())
    assert found.agrees and "around a GPT2LMHeadModel" in found.kind
    assert found.asks["kernel swaps"] == found.asks["early exits"] == ""
    random = check_protocol(gpt2_bridge(dropout=0.5).train(), words())
    assert any("model.eval()" in note for note in random.notes) and not random.agrees


def test_a_model_that_computes_something_else_is_told():
    model = own_model()
    model.add_hook(hook_name("attn_out", 0), lambda u, hook: 1.01 * u, is_permanent=True)
    found = check_protocol(model, words())
    assert not found.agrees and "DIFFERS" in str(found)


def test_what_the_plain_pass_does_not_know_is_named():
    model = own_model(**ROTARY)
    with pytest.raises(NotRebuilt, match="rotary positions"):
        plain_forward(model, words())
    found = check_protocol(model, words())
    assert found.parity is None and not found.agrees and "not checked: its forward pass has rotary" in str(found)
    assert "is not softmax of hook_q and hook_k" in found.asks["kernel swaps"] and found.asks["early exits"] == ""


def test_what_can_be_asked():
    found = check_protocol(own_model(), words())
    assert "reads numbers of a vocabulary of 20" in found.asks["probe"] and found.asks["kernel swaps"] == ""
    bare = without_biases(own_model(**BARE))
    prompts = rows().float()
    assert check_protocol(Continuous(bare, LAYOUT), prompts).asks["kernel operators"] == ""
    linear = check_protocol(Continuous(bare, LAYOUT, kernel="linear"), prompts)
    assert linear.agrees and linear.asks["unroll"] == "" and "take `unroll`" in linear.asks["kernel operators"]
    assert "residual stream" in str(linear) and "attention linear" in str(linear)
    plain = json.loads(json.dumps(linear.to_dict()))
    assert plain["agrees"] and plain["asks"]["unroll"] == {"possible": True, "why_not": ""}


class Deaf(Continuous):
    """Shows hooks the activations and ignores what they return."""

    def run_with_hooks(self, tokens, fwd_hooks=(), start_at_layer=None):
        def deaf(function):
            return lambda activation, hook=None: (function(activation, hook=hook), None)[1]

        return super().run_with_hooks(tokens, [(name, deaf(function)) for name, function in fwd_hooks], start_at_layer)


def test_a_model_that_ignores_edits_is_detected_and_refused():
    deaf, prompts = Deaf(own_model(), LAYOUT), rows().float()
    found = check_protocol(deaf, prompts)
    assert found.moved == 0 and not found.takes_edits and found.agrees and "move nothing" in str(found)
    assert "ignores edits of hook_pattern" in found.asks["kernel swaps"] and found.asks["probe"] == ""
    for call in (lambda: check_pattern_edits(deaf, prompts), lambda: swapped(deaf, prompts, "linear")):
        with pytest.raises(ValueError, match="ignores edits of hook_pattern"):
            call()


def test_an_output_that_is_not_finite_is_told():
    model = own_model()
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = torch.inf
    with pytest.raises(ValueError, match="the model's output holds NaN or inf"):
        check_protocol(model, words())


def test_a_swapped_model_is_a_plain_function():
    model = Continuous(without_biases(own_model(**BARE)), LAYOUT, kernel="linear").double()
    assert model.cfg.n_layers == 2 and model.foreign.cfg.dtype == torch.float64
    one_by_one = torch.func.vmap(lambda prompt: model(prompt[None])[0])(rows())
    assert torch.allclose(one_by_one, model(rows()), rtol=1e-12)
    with pytest.raises(ValueError, match="the pattern of layer 0 is not softmax"):
        Continuous(own_model(**ROTARY), LAYOUT, kernel="linear")


@only_three
@pytest.mark.parametrize("build", [native_bridge, gpt2_bridge], ids=["native", "gpt2"])
def test_the_bridge_of_version_3_is_refused_by_name(build):
    bridge, message = build(), "the TransformerBridge of transformer-lens 3"
    for call in (
        lambda: swapped(bridge, words(), "linear"),
        lambda: ablate(bridge, words()),
        lambda: ablate(bridge, words(), [ablate_head(Reference.of(bridge, words()), 0, [0], "zero")]),
        lambda: Continuous(bridge, LAYOUT),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    found = check_protocol(bridge, words())
    assert message in found.asks["heads, MLPs, layers"] and found.asks["hooks, capture"] == "" and found.agrees
    assert found.takes_edits == (build is gpt2_bridge)
    name = hook_name("pattern", 1)
    assert torch.allclose(capture(bridge, words(), [name])[name].sum(-1), torch.ones(5, 2, 8))


@only_three
def test_processing_of_version_3_is_seen():
    model = own_model()
    assert signs_of_processing(model) == ()
    model.load_and_process_state_dict(model.state_dict())
    found = " ".join(signs_of_processing(model))
    for sign in ("fold_ln", "fold_value_biases", "center_unembed", "center_writing_weights"):
        assert sign in found


@only_four
def test_processing_of_version_4_is_seen():
    model = gpt2_bridge()
    assert signs_of_processing(model) == ()
    model.enable_compatibility_mode(disable_warnings=True)
    found = " ".join(signs_of_processing(model))
    for sign in ("compatibility mode", "fold_value_biases", "center_unembed"):
        assert sign in found
    assert "compatibility mode" in str(check_protocol(model, words()))


def test_a_vocabulary_model_given_to_a_regression_analysis():
    model = own_model()
    assert reads_vocabulary(model)
    real = "reads numbers of a vocabulary of 20, and the prompts are real-valued"
    for call, message in (
        (lambda: capture(model, rows().float(), [hook_name("resid_pre", 0)]), real),
        (lambda: ablate(model, rows().float()), real),
        (lambda: check_protocol(model, rows().float()), real),
        (lambda: probe(model, rows(20), layout=LAYOUT), real),
        (lambda: probe(model, words(20), layout=LAYOUT), "the prompts are numbers of a vocabulary"),
        (lambda: compare(model, words(20), Covariance("rbf", 1.0), 0.1), "the prompts have no tokens"),
        (lambda: unroll(model, LAYOUT), "its attention kernel is softmax"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


class NoPositions(nn.Module):
    def forward(self, tokens, *_):
        return torch.zeros(*tokens.shape[:2], 6)


@only_three
def test_a_replaced_embedding_takes_real_valued_prompts():
    model = own_model(**BARE)
    model.embed, model.pos_embed = nn.Linear(4, 6), NoPositions()
    assert not reads_vocabulary(model)
    prompts, name = rows().float()[..., :4], hook_name("resid_pre", 0)
    assert torch.equal(capture(model, prompts, [name])[name], model.embed(prompts))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Continuous(ours(kernel=AttentionKernel()), LAYOUT), "is no model of TransformerLens"),
        (lambda: Continuous(own_model(), BlockLayout.standard(x=2, y=1)), "the layout has 3 columns"),
        (lambda: Continuous(own_model(), LAYOUT, readout="logits"), "unknown readout 'logits'; known: layout, unembed"),
        (lambda: Continuous(own_model(), LAYOUT, kernel="sofmax"), "unknown kernel 'sofmax'"),
        (
            lambda: Continuous(own_model(), LAYOUT).predict(words()),
            r"rows \[batch, token, 6\] of the stream, got \[5, 8\]",
        ),
        (lambda: Continuous(own_model(), LAYOUT).predict(rows(2, 13)), "13 rows, and the model's context is 12"),
        (lambda: Continuous(own_model(), LAYOUT).predict(rows()), "the prompts are torch.float64 and the weights"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_bad_input(call, message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_scale_of_scores():
    model = own_model(use_attn_scale=False)
    assert Continuous(model, LAYOUT).cfg.kernel.scale == "none"
    found = check_protocol(model, words())
    assert found.agrees == (not FOUR)  # the native bridge of 4.3.0 divides by √d_head all the same
    assert ("is not softmax of hook_q" in found.asks["kernel swaps"]) == FOUR
    model = own_model()
    model.cfg.attn_scale = 5.0
    with pytest.raises(ValueError, match=r"scales its scores by 0\.2, neither 1 nor 1/√d_head"):
        Continuous(model, LAYOUT)


def test_positions_that_are_not_added_are_refused():
    with pytest.raises(ValueError, match="the positions of this model are rotary"):
        Continuous(own_model(**ROTARY), LAYOUT, positions=True)
