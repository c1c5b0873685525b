import json

import pytest
import torch

from interp import unroll
from interp.layout import BlockLayout, Visibility
from interp.unrolling import UpdateRule, messages
from interp.unrolling.render import to_text
from models.constructions import CONSTRUCTIONS, VARIANTS, PromptShape, one_head_a_machine
from models.constructions.weights import linear_model, place
from models.prompts import LogUniformSpectrum
from tests.builders import random_model, random_tokens

D, OUT, QUERIES = 4, 2, 3
FAMILY = LogUniformSpectrum(n=12, d=D, n_query=QUERIES, d_out=OUT, kappa=5.0)
FORMS = {
    "two roles": CONSTRUCTIONS["distributed EAGLE"](3, D, OUT, 12, 3, QUERIES),
    "one head a machine": VARIANTS["distributed EAGLE, one head a machine"](3, D, OUT, 12, 3, QUERIES),
}
TWO_ROLES = (Visibility("machine", "none"), Visibility("none", "context"))


def rule_of(name: str) -> UpdateRule:
    return unroll(FORMS[name].model, prompts=FORMS[name].tokens(FAMILY.sample(32, seed=0)))


@pytest.mark.parametrize("name", FORMS)
def test_floats_of_eagle(name: str):
    """Up n'(d + d'), down n' d, and n' d' up in the last round, whose x columns nothing reads."""
    found = messages(rule_of(name))
    assert [entry.up for entry in found.rounds] == [QUERIES * (D + OUT)] * 2 + [QUERIES * OUT]
    assert [entry.down for entry in found.rounds] == [QUERIES * D] * 3
    assert [entry.moments for entry in found.rounds] == [D * (D + 1) // 2 + D * OUT] * 2 + [D * OUT]
    assert found.gradient == D * OUT and found.local and found.agree and found.level == "core"


@pytest.mark.parametrize("name", FORMS)
def test_text_says_what_is_sent(name: str):
    text = to_text(rule_of(name))
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "B S_μ,xx (3 × 4) into B; B S_μ,xy (3 × 2) into D" in text
    assert "B = z_x of the 3 query rows; D = z_y" in text
    shared = "one number for all machines" in text
    assert shared == (name == "two roles") and ("machines agree within 0.05" in text) != shared
    values = json.loads(json.dumps(rule_of(name).to_dict()))["messages"]
    assert values["rounds"][0]["floats"] == {"up": 18, "down": 12, "moments": 18} and values["agree"]


SERVED = {
    "two roles": TWO_ROLES,
    "one a machine": (Visibility("machine 0", "machine 0"), Visibility("machine 1", "machine 1")),
    "all and one": (Visibility("machine", "context"), Visibility("none", "machine 1")),
}


@pytest.mark.parametrize("name", SERVED)
def test_messages_times_coefficients_are_the_step(name: str):
    """Brute force: every machine's words of its own rows, weighted and added up, move the query rows."""
    model = random_model(3, 2, 2, 2, seed=3, visibility=SERVED[name], size=0.4)
    rule, tokens = unroll(model), random_tokens(model, 4, 6, seed=1)
    at, found = model.layout.slices, messages(rule)
    assert found.level == "words" and not (name != "two roles" and found.agree)
    for index, z in enumerate(list(rule.states(tokens, "words"))[:-1]):
        step = torch.zeros_like(z[:, -2:])
        for entry in found.rounds[index].messages:
            for machine, coefficient in enumerate(entry.coefficients):
                own = z[:, 3 * machine : 3 * machine + 3]
                S = own[..., at[entry.word.left]].mT @ own[..., at[entry.word.right]]
                row = z[:, -2:, at[entry.word.row]]
                part = S.diagonal(dim1=1, dim2=2).sum(1)[:, None, None] * row if entry.word.trace else row @ S
                assert part.shape[1:] == entry.shape
                step[..., at[entry.word.into]] += coefficient * part
        torch.testing.assert_close(step, rule.step(index, z, "words")[:, -2:], rtol=1e-12, atol=1e-12)


def test_parts_of_rank_limited_heads_are_narrower():
    """Queries are read in r directions and written in r + d'."""
    layout = BlockLayout.standard(x=4, y=2, n_query=3, sign=-1, machines=2, visibility=TWO_ROLES)
    P = torch.diag(torch.tensor([1.0, 1, 0, 0], dtype=torch.float64))
    Q, V = place(layout, {("x", "x"): P}), place(layout, {("x", "x"): -0.4 * P, ("y", "y"): -0.9})
    rule = unroll(linear_model(Q.expand(2, 2, -1, -1), V.expand(2, 2, -1, -1), layout))
    assert [(entry.up, entry.down) for entry in messages(rule).rounds] == [(3 * 4, 3 * 2), (3 * 2, 3 * 2)]


def test_machines_that_do_not_agree():
    model = one_head_a_machine(PromptShape(D, OUT, QUERIES), 2, [-0.4, -0.6], [0.8, 1.5]).model
    with torch.no_grad():
        model.blocks[0].attn.W_O[1] *= 0.8
    found = messages(unroll(model))
    assert [entry.apart for entry in found.rounds] == pytest.approx([1 / 9, 0.0], abs=1e-12)
    assert not found.agree and "machines DO NOT agree" in str(found)


def test_context_rows_that_see_other_machines_are_mentioned():
    found = messages(unroll(random_model(3, 2, 2, 1, seed=1)))
    assert not found.local and "context rows see other machines as well" in str(found)
    last = messages(unroll(random_model(3, 2, 1, 1, seed=1)))
    assert last.local  # in one layer what context rows see reaches nothing


def test_queries_that_see_nothing_are_sent_nothing():
    found = messages(unroll(random_model(3, 2, 2, 1, seed=1, visibility=Visibility("machine", "none"))))
    assert [(entry.up, entry.down, entry.messages) for entry in found.rounds] == [(0, 0, ())] * 2
    assert "layers 0 to 1   nothing" in str(found)


def test_one_machine_sends_nothing():
    rule = unroll(CONSTRUCTIONS["EAGLE"](0, D, OUT).model)
    with pytest.raises(ValueError, match="one machine, which sends nothing"):
        messages(rule)
    assert rule.to_dict()["messages"] is None and "messages" not in str(rule)
