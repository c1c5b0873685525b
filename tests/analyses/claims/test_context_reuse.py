"""The claim context-reuse at small sizes: operations against a count by hand, and what is timed."""

import pytest
import torch

from analyses.claims import context_reuse
from analyses.claims.claim import Settings
from analyses.claims.context_reuse import Work
from analyses.claims.costs import alternating, count_flops
from analyses.claims.criteria.consequences import CONSEQUENCES
from tests.analyses.claims.processes import CONFIG, FAMILY, small_model

N, QUERIES = FAMILY.n, 5
ROW = 2 * (4 * 8 * 4 + 2 * 8 * 12) * 4 + 2 * (2 * 8 + 8)
"""Multiplications and additions of one row, without its pairs: four blocks, read-in and read-out."""
PAIR = 2 * 2 * 4 * 4
"""Of a query and a key: score and value, four blocks."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CONTEXTS": 3, "QUERIES": QUERIES, "SWEEP": (1, 4), "SWEEP_ROUNDS": 2}.items():
        monkeypatch.setattr(context_reuse, name, value)


def work(contexts: int = 3) -> Work:
    return Work.of(small_model(), FAMILY, contexts, QUERIES, Settings())


def test_prompts_are_of_one_context_and_one_query():
    found = work()
    assert found.prompts.shape == (3 * QUERIES, N + 1, 2)
    assert torch.equal(found.prompts[QUERIES + 2, :N], found.context[1])
    assert torch.equal(found.prompts[QUERIES + 2, N], found.queries[1, 2])
    assert found.queries[..., 1].count_nonzero() == 0
    one = found.model.predict(found.prompts[QUERIES + 2 : QUERIES + 3])[0, 0, 0]
    assert found.whole()()[1, 2, 0].item() == pytest.approx(one.item(), rel=1e-12)
    assert found.cached()()[1, 2, 0].item() == pytest.approx(one.item(), rel=1e-10)
    assert found.gap() < 1e-12


def test_operations_are_those_counted_by_hand():
    whole, cached = work(1).flops()
    prompt = (N + 1) * ROW + (N + 1) ** 2 * PAIR
    assert whole == QUERIES * prompt
    own_scores = PAIR // 2  # a query's value of itself is a product of numbers, which the counter does not count
    assert cached == prompt + QUERIES * (ROW + N * PAIR + own_scores)
    assert count_flops(lambda: None) == 0


def test_runs_alternate():
    calls: list[str] = []
    times = alternating(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3)
    assert "".join(calls) == "abab" + "ab" + "ba" + "ab"
    assert times.shape == (2, 3) and (times > 0).all()


def test_every_criterion_is_measured_on_the_model_that_gains_least():
    models = {"first": {0: small_model(0), 1: small_model(1)}, "deep": {0: small_model(2, n_layers=5)}}
    findings = context_reuse.measure(Settings(), models, dict.fromkeys(models, FAMILY), rounds=4)
    assert set(findings.measurements) == set(CONSEQUENCES["context-reuse"])
    details = findings.details
    assert findings.measurements["equal"].value == max(details["gaps"].values()) and len(details["gaps"]) == 3
    for key, unit in (("flops", "flops"), ("time", "seconds")):
        ratios = [by["whole"] / by["cached"] for by in details[unit].values()]
        assert findings.measurements[key].value == pytest.approx(min(ratios), rel=1e-12)
    assert details["flops"]["deep"]["whole"] > details["flops"]["first"]["whole"]
    assert set(details["sweep"]) == {1, 4} and details["sweep"][1]["flops"] < 1
    assert CONFIG.n_layers == 4
