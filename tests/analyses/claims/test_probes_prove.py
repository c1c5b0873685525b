"""The claim probes-prove at small sizes: edits do what they say, and effects are those of blocks run by hand."""

import pytest
import torch

from analyses.claims import probes_prove
from analyses.claims.claim import Settings
from analyses.claims.criteria.decoding import DECODING
from interp.decoding import Steering
from interp.hooks import capture, hook_name
from models import zoo

AT = hook_name("resid_post", 1)


@pytest.fixture(scope="module")
def model():
    return zoo.load(probes_prove.SOFTMAX).double()


@pytest.fixture(scope="module")
def prompts():
    return zoo.prompts(probes_prove.SOFTMAX, 6, seed=3)


def test_both_steps_move_the_probe_by_delta_and_the_pattern_lies_in_the_features():
    generator = torch.Generator().manual_seed(0)
    low_rank = torch.randn(50, 4, generator=generator).double() @ torch.randn(4, 7, generator=generator).double()
    coef, delta = (torch.randn(*shape, generator=generator).double() for shape in ((2, 7), (3, 2)))
    pattern, least = probes_prove.pattern_step(low_rank, coef, delta), delta @ torch.linalg.pinv(coef).T
    for step in (pattern, least):
        torch.testing.assert_close(step @ coef.T, delta, rtol=1e-10, atol=1e-12)
    assert (least.norm(dim=1) <= pattern.norm(dim=1)).all()
    centred = low_rank - low_rank.mean(0)
    assert torch.linalg.matrix_rank(torch.cat([centred, pattern])) == 4
    regression = torch.linalg.lstsq(centred @ coef.T, centred).solution
    torch.testing.assert_close(pattern, delta @ regression, rtol=1e-8, atol=1e-10)


def test_a_move_is_what_the_later_blocks_make_of_the_moved_rows(model, prompts):
    shift = 0.3 * torch.randn(6, model.cfg.d_model, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        z = model.embed(prompts.tokens)
        for layer, block in enumerate(model.blocks):
            z = block(z)
            if layer == 1:
                z = torch.cat([z[:, :-1] + shift[:, None], z[:, -1:]], dim=1)
        by_hand = model.unembed(model.ln_final(z))[:, -1:] - model.predict(prompts.tokens)
    found = probes_prove.moved(model, prompts, AT, shift)
    torch.testing.assert_close(found, by_hand[:, 0, 0], rtol=1e-10, atol=1e-12)
    assert found.abs().max() > 1e-4
    assert probes_prove.moved(model, prompts, AT, 0 * shift).abs().max() == 0


def test_nothing_reads_the_context_rows_after_the_last_block(model, prompts):
    shift = torch.ones(6, model.cfg.d_model, dtype=torch.float64)
    assert probes_prove.moved(model, prompts, hook_name("resid_post", 5), shift).abs().max() == 0


def test_the_slope_is_1_for_a_model_that_answers_with_the_w_and_0_for_one_that_does_not():
    expected = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    sideways = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    nothing = Steering("hook", 0.0, (0.0,))
    changes = {"pattern": expected, "least": 0.5 * expected, "random": sideways}
    found = probes_prove.Effect(1, expected, changes, nothing, nothing)
    assert [found.slope(edit).item() for edit in probes_prove.EDITS] == pytest.approx([1, 0.5, 0])
    assert found.slope("least", torch.tensor([[0, 0, 1], [2, 1, 0]])).tolist() == pytest.approx([0.5, 0.5])


def test_every_criterion_is_measured_where_a_later_layer_reads():
    findings = probes_prove.measure(Settings(), prompts=160, moved=16)
    assert set(findings.measurements) == set(DECODING["probes-prove"])
    scores = [layer["score"] for layer in findings.details["probe"]["layers"]]
    assert findings.measurements["probe"].value == max(scores[1:-1])
    assert findings.measurements["unread"].value == scores[-1]
    depth = scores.index(max(scores[1:-1]))
    writes = findings.details["writes"]
    assert findings.measurements["cause"].value == pytest.approx(writes[depth - 1]["pattern"], rel=1e-10)
    assert writes[-1]["depth"] == 6 and writes[-1]["pattern"] == 0
    assert all(write["steered"]["verdict"] in findings.table for write in writes)


def test_the_query_row_moved_along_the_prediction_causes_and_random_directions_do_not(model, prompts):
    """By hand: the last block's query row goes to the readout alone."""
    sample = zoo.prompts(probes_prove.SOFTMAX, 400, seed=4)
    last = hook_name("resid_post", 5)
    with torch.no_grad():
        z, after = (capture(model, p.tokens, [last])[last][:, -1:] for p in (sample, prompts))
        answers = model.predict(sample.tokens)[:, 0]
        slope = torch.linalg.lstsq(answers - answers.mean(), z[:, 0] - z[:, 0].mean(0)).solution[0]
        by_hand = model.unembed(model.ln_final(after + probes_prove.ANSWER_MOVE * slope))
        change = (by_hand - model.unembed(model.ln_final(after)))[:, 0, 0]
    found = probes_prove.steer_answer(model, prompts, last, z[:, 0], answers, seed=0)
    assert found.gain == pytest.approx((change / probes_prove.ANSWER_MOVE).median().item(), rel=1e-9)
    assert found.causes and found.gain > 0.5


def test_the_context_rows_pass_an_error_on_as_the_algebra_and_the_rule_say():
    found = probes_prove.algebra(Settings(), 16)
    assert all(one["error"] < 1e-10 for one in found)
    assert all(one["gain"] == pytest.approx(one["closed_form"], abs=0.02) for one in found)
    assert found[0]["gain"] == pytest.approx(-1, abs=0.01) and found[-1]["gain"] == 0
    assert found[-2]["gain"] > found[0]["gain"] + 0.05
