from analyses.claims import communication
from analyses.claims.claim import Settings
from analyses.claims.communication import Sizes, floats_a_round, floats_a_round_in_blocks, measure_at
from analyses.claims.criteria import CRITERIA
from interp.unrolling import unroll
from interp.unrolling.messages import messages
from models.constructions import PromptShape, one_head_a_machine


def test_floats_are_rounds_times_what_a_round_sends(tmp_path, monkeypatch):
    monkeypatch.setattr(communication, "ROWS", (20, 40))
    findings = measure_at(Sizes(prompts=2, rounds=400), Settings())
    of = findings.details["40"]["rounds"]
    by_hand = [4 * dane / (2 * eagle) for dane, eagle in zip(of["DANE"], of["EAGLE"], strict=True)]
    low, high = findings.measurements["dane"].interval
    assert min(by_hand) - 1e-12 <= low <= findings.measurements["dane"].value <= high <= max(by_hand) + 1e-12
    by_hand = [averaging / eagle for averaging, eagle in zip(of["gradient averaging"], of["EAGLE"], strict=True)]
    assert min(by_hand) <= findings.measurements["averaging"].value <= max(by_hand)
    assert set(findings.measurements) == set(CRITERIA["communication"])
    assert findings.draw is not None
    findings.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_vectors_a_round():
    assert floats_a_round("EAGLE", machines=3, d=5, out=2) == 3 * (5 * 2 + 5 * 2)
    assert floats_a_round("DANE", machines=3, d=5, out=2) == 3 * 4 * 10


def test_the_block_form_sends_what_its_transformer_sends():
    shape = PromptShape(5, d_out=2, n_query=3)
    rule = unroll(one_head_a_machine(shape, 4, [-0.3] * 3, [0.3] * 3).model)
    first, last = messages(rule).rounds[0], messages(rule).rounds[-1]
    assert 4 * (first.up + first.down) == floats_a_round_in_blocks(3, machines=4, d=5, out=2)
    assert last.up < first.up  # B is not needed any more
