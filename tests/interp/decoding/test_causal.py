import pytest
import torch

from interp.decoding import decode, interchange, steer, write_weights
from interp.hooks import hook_name
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from interp.stats import relative_errors
from models.config import TransformerConfig
from models.constructions import PromptShape, scheduled_eagle
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer
from tests.builders import random_model, random_tokens

PROMPTS = LogUniformSpectrum(n=8, d=3, n_query=2, d_out=2, kappa=4).sample(4, seed=0)
LAYERS = 3
ETA, GAMMA = [-1.2, -2.0, -3.0], [1.2, 2.0, 3.0]
DELTA = torch.randn(3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ROWS = ("query", "context", "all")


def built(scale: str = "none") -> HookedTransformer:
    unit = 8 if scale == "n" else 1
    shape = PromptShape(3, 2, 2, scale, 8)
    return scheduled_eagle(shape, [unit * eta for eta in ETA], [unit * gamma for gamma in GAMMA]).model


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("depth", range(LAYERS + 1))
def test_swapped_states_do_what_the_rule_says(depth: int, rows: str):
    model = random_model(3, 2, layers=LAYERS, heads=2, seed=0, size=0.3)
    tokens = random_tokens(model, 4, n=6, seed=1)
    found = interchange(model, tokens, depth, rows)
    assert found.error < 1e-10
    torch.testing.assert_close(found.clean, model.predict(tokens).detach())
    donor = found.clean.roll(1, dims=0)
    if rows == "all" or (rows == "query" and depth == LAYERS):
        torch.testing.assert_close(found.measured, donor, rtol=1e-10, atol=1e-12)
    elif rows == "context" and depth == LAYERS:
        assert found.effect == 0
    else:
        assert found.effect > 1e-3 and relative_errors(found.measured, donor).min() > 1e-6


@pytest.mark.parametrize("depth", [0, 1])
def test_a_swapped_query_is_answered_with_the_weights_of_the_context_it_meets(depth: int):
    """At depth 0 that is B w of the decoded weights; later the row brings what it already holds."""
    found, decoding = interchange(built(), PROMPTS, depth, "query"), decode(built(), PROMPTS)
    answer = PROMPTS.B.roll(1, dims=0) @ decoding.weights[-1]
    error = relative_errors(found.measured, answer)
    assert error.max() < 1e-10 if depth == 0 else error.min() > 1e-3


@pytest.mark.parametrize("scale", ["none", "n"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("depth", range(LAYERS + 1))
def test_written_weights_move_the_prediction_as_the_polynomials_say(depth: int, rows: str, scale: str):
    found = write_weights(built(scale), PROMPTS, depth, DELTA, rows)
    assert found.error < 1e-10 and found.closed_form_error < 1e-10
    torch.testing.assert_close(found.expected, PROMPTS.B @ DELTA)
    if rows == "query":
        torch.testing.assert_close(found.measured, found.expected, rtol=1e-10, atol=1e-12)


def test_a_written_error_shrinks_by_what_is_left_of_r():
    """With query and context moved alike the model goes on from w + δ: r_L/r_l of δ remains in each direction."""
    model, depth = built(), 1
    hessian = decode(model, PROMPTS).hessian
    assert hessian.r[depth].abs().min() > 1e-2
    basis = torch.linalg.svd(PROMPTS.A, full_matrices=False)[2].mT
    kept = hessian.r[-1] / hessian.r[depth]
    expected = PROMPTS.B @ (basis * kept[:, None]) @ basis.mT @ DELTA
    torch.testing.assert_close(write_weights(model, PROMPTS, depth, DELTA).measured, expected, rtol=1e-9, atol=1e-10)


def test_one_delta_a_prompt_and_machines():
    rules = (Visibility("machine", "none"), Visibility("none", "context"))
    model = random_model(3, 2, layers=2, heads=2, seed=5, visibility=rules)
    deltas = torch.stack([DELTA, 2 * DELTA, -DELTA])
    found = write_weights(model, random_tokens(model, 3, n=6, seed=6), 1, deltas, "query")
    assert found.error < 1e-10 and found.by_closed_form is None and found.closed_form_error is None
    assert found.gain == pytest.approx(found.gain_by_rule)


def test_a_direction_that_is_used_is_told_from_one_that_is_not():
    """Query rows: y columns carry the prediction to the end; x columns of the last depth are read by nothing."""
    model = built()
    hook, expected = hook_name("resid_pre", 1), PROMPTS.B @ DELTA
    move = torch.zeros(4, 2, 5, dtype=torch.float64)
    move[..., 3:] = -expected
    used = steer(model, PROMPTS, hook, move, expected, expected_gain=1.0)
    assert used.causes and used.gain == pytest.approx(1) and "reads and causes" in str(used)
    aside = torch.zeros(5, dtype=torch.float64)
    aside[0] = 1.0
    unread = steer(model, PROMPTS, hook_name("resid_post", LAYERS - 1), aside, expected)
    assert unread.gain == 0 and not unread.causes and unread.verdict == "reads but does not cause"
    assert set(unread.to_dict()) == {"hook", "gain", "controls", "expected_gain", "causes", "verdict"}


def test_values_print_and_become_plain():
    swap, write = interchange(built(), PROMPTS, 1), write_weights(built(), PROMPTS, 1, DELTA)
    assert str(swap).startswith("depth 1, query rows of another prompt") and swap.to_dict()["rows"] == "query"
    assert "reaches the prediction" in str(write) and write.to_dict()["gain"] == write.gain


def _softmax(d_in: int | None) -> HookedTransformer:
    layout = BlockLayout.standard(x=3, y=2, n_query=2)
    width = 5 if d_in is None else 8
    kernel = AttentionKernel("exp", "sum")
    return HookedTransformer(
        TransformerConfig(2, 1, width, 4, kernel=kernel, d_in=d_in, d_out=2 if d_in else None), layout
    )


def test_a_model_without_a_rule_is_changed_all_the_same():
    found = write_weights(_softmax(None), PROMPTS, 2, DELTA, "query")
    assert found.gain == pytest.approx(1) and found.error is None and found.by_rule is None
    swap = interchange(_softmax(None), PROMPTS, 1, "all")
    assert swap.error is None and "no rule to compare with" in str(swap)
    torch.testing.assert_close(swap.measured, swap.clean.roll(1, dims=0))


def test_a_model_that_reads_its_tokens_in_is_swapped():
    model = _softmax(5).double()
    swap = interchange(model, PROMPTS, 1, "all")
    torch.testing.assert_close(swap.clean, model.predict(PROMPTS.tokens).detach())
    torch.testing.assert_close(swap.measured, swap.clean.roll(1, dims=0))
    half = interchange(model, PROMPTS, 1, "context")
    assert half.effect > 1e-6 and relative_errors(half.measured, swap.measured).min() > 1e-6


MODEL = built()


def _steered(direction: torch.Tensor, expected: torch.Tensor = PROMPTS.target, tokens: slice | None = None):
    return steer(MODEL, PROMPTS, hook_name("resid_pre", 0), direction, expected, tokens=tokens)


BAD = {
    "one prompt": (lambda: interchange(MODEL, PROMPTS.tokens[:1], 0), "at least two"),
    "depth": (lambda: interchange(MODEL, PROMPTS, LAYERS + 1), "depth=4 must lie between 0 and the model's 3 layers"),
    "rows": (lambda: interchange(MODEL, PROMPTS, 1, "some"), "rows='some' must be query, context or all"),
    "shape": (lambda: write_weights(MODEL, PROMPTS, 1, torch.ones(2, 3)), r"delta is \[2, 3\].*\[3, 2\]"),
    "zero delta": (lambda: write_weights(MODEL, PROMPTS, 1, 0 * DELTA), "delta moves no answer of prompt 0"),
    "zero delta of one prompt": (
        lambda: write_weights(MODEL, PROMPTS, 1, torch.stack([DELTA, DELTA, 0 * DELTA, DELTA])),
        "delta moves no answer of prompt 2",
    ),
    "NaN delta": (lambda: write_weights(MODEL, PROMPTS, 1, torch.nan * DELTA), "delta holds NaN"),
    "zero direction": (lambda: _steered(torch.zeros(5)), "direction of a prompt is 0"),
    "zero direction of one prompt": (lambda: _steered(torch.eye(5)[1:] * torch.tensor([0, 1, 1, 1])[:, None]), "is 0"),
    "NaN direction": (lambda: _steered(torch.full((5,), torch.nan)), "direction holds NaN"),
    "direction of too many rows": (lambda: _steered(torch.ones(4, 3, 5)), r"direction is \[4, 3, 5\]; pass \[width\]"),
    "rows beyond": (lambda: _steered(torch.ones(5), tokens=slice(20, 22)), "beyond the 10 of a prompt"),
    "rows partly beyond": (lambda: _steered(torch.ones(5), tokens=slice(8, 12)), "beyond the 10 of a prompt"),
    "no rows": (lambda: _steered(torch.ones(5), tokens=slice(3, 3)), "holds no rows"),
    "another expected": (
        lambda: _steered(torch.ones(5), PROMPTS.target[:, :1]),
        r"expected move is \[4, 1, 2\], the answers are \[4, 2, 2\]",
    ),
    "NaN expected": (lambda: _steered(torch.ones(5), torch.nan * PROMPTS.target), "expected move holds NaN"),
    "overflow": (lambda: _steered(torch.full((5,), 1e200, dtype=torch.float64)), "overflow; pass a smaller direction"),
    "read in": (
        lambda: write_weights(_softmax(5), PROMPTS, 1, DELTA),
        "read into the residual stream by learned weights",
    ),
    "hook": (
        lambda: steer(MODEL, PROMPTS, "blocks.9.hook_mlp_out", torch.ones(5), PROMPTS.target),
        "no hook point 'blocks.9",
    ),
    "four axes": (
        lambda: steer(MODEL, PROMPTS, hook_name("z", 0), torch.ones(5), PROMPTS.target),
        "steer at a hook of the residual stream",
    ),
    "controls": (
        lambda: steer(MODEL, PROMPTS, hook_name("resid_pre", 0), torch.ones(5), PROMPTS.target, controls=0),
        "controls=0 must be at least 1",
    ),
    "nothing expected": (
        lambda: steer(MODEL, PROMPTS, hook_name("resid_pre", 0), torch.ones(5), 0 * PROMPTS.target),
        "expected move of a prompt is 0",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_in_a_sentence(case: str):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
