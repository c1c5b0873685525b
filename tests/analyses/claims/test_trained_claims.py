"""The claims about trained models at small sizes: what they measure agrees with other ways to the same numbers."""

import pytest
import torch

from analyses.claims import depth, emergence, pruning, quantisation, same_rule
from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.eagle_form import eagle_form
from interp import certify, unroll
from models import zoo
from models.evaluation import evaluate, predictions


def test_same_rule_measures_every_criterion_and_names_who_falls_short():
    findings = same_rule.measure(Settings(), prompts=64)
    assert set(findings.measurements) == set(CRITERIA["same-rule"])
    entries = findings.details["entries"]
    assert len(entries) == 3 * len(same_rule.REGIMES)
    least = [min(layer["explained"] for layer in entry["layers"]) for entry in entries]
    share = findings.measurements["words"]
    assert share.value == sum(value >= same_rule.ENOUGH for value in least) / len(entries)
    for entry, value in zip(entries, least, strict=True):
        assert (entry["model"] in share.note) >= (value < same_rule.ENOUGH)


def test_the_fidelity_of_the_form_is_that_of_the_certificate():
    """eagle's form against the two-word core: the published measure by two ways, close as both drop little."""
    prompts = zoo.prompts("eagle", 256, seed=5)
    rule = unroll(zoo.load("eagle"))
    form, _ = eagle_form(rule)
    ours = [certify(rule_, zoo.load("eagle"), prompts).levels["exact"].layers for rule_ in (form, rule)]
    measured = same_rule.layer_fidelity(rule, form, prompts)
    for certified, layer in zip(ours[0], measured, strict=True):
        assert layer.fidelity == pytest.approx(certified.fidelity, rel=1e-4)
        assert layer.explained == pytest.approx(certified.function_explained, abs=1e-6)
    assert all(layer.fidelity < 1e-12 for layer in ours[1])


def test_along_training_the_last_moment_is_the_shipped_model():
    findings = emergence.measure(Settings(seed=2), prompts=32)
    moments = findings.details["moments"]
    whole = evaluate(zoo.load(emergence.MODEL), zoo.family(emergence.MODEL), count=32, seed=2)
    assert moments[-1]["error"] == pytest.approx(whole.pooled_relative_error, rel=1e-6)
    assert moments[0]["error"] == pytest.approx(1, abs=0.05) and max(moments[0]["explained"]) < 0.1
    assert findings.measurements["explained"].value == min(moments[-1]["explained"])


def test_all_heads_kept_is_the_model_and_one_is_one():
    model = zoo.load(pruning.MODEL).double()
    tokens = zoo.prompts(pruning.MODEL, 8, seed=1).tokens
    rule = unroll(model)
    torch.testing.assert_close(pruning.merged(rule, 8).predict(tokens, "exact"), model.predict(tokens))
    torch.testing.assert_close(pruning.pruned(model, 8).predict(tokens), model.predict(tokens))
    torch.testing.assert_close(pruning.pruned(model, 8, rescale=True).predict(tokens), model.predict(tokens))
    one = pruning.pruned(model, 1)
    assert [(block.attn.W_O.flatten(1).norm(dim=1) > 0).sum().item() for block in one.blocks] == [1] * 4
    assert set(pruning.measure(Settings(), prompts=16).measurements) == set(CRITERIA["pruning"])


def test_clusters_are_counted_and_many_of_them_are_the_matrix():
    rule = unroll(zoo.load("eagle-d10"))
    few = quantisation.clustered(rule, 2, 3)
    live = few.layers[0].groups[0].group
    assert len(live.Q[0].unique()) == 2 and len(live.V[0].unique()) == 3
    matrix = torch.tensor([[1.0, 5.0], [1.2, 4.8]], dtype=torch.float64)
    torch.testing.assert_close(quantisation.to_clusters(matrix, 2), matrix.new_tensor([[1.1, 4.9], [1.1, 4.9]]))
    assert torch.equal(quantisation.to_clusters(matrix, 4), matrix)


def test_quantisation_reports_the_worst_model():
    findings = quantisation.measure(Settings(), prompts=32)
    ratios = findings.details["error_ratios"]
    for name in CRITERIA["quantisation"]:
        assert findings.measurements[name].value == max(ratios[model][name] for model in quantisation.MODELS)


def test_depth_compares_every_seed_with_first_order_solvers():
    findings = depth.measure(Settings(), prompts=16)
    assert set(findings.measurements) == set(CRITERIA["depth"])
    assert len(findings.details["seeds"]) == 15
    sample = zoo.prompts("eagle-d10", 16, seed=0)
    gap = predictions(zoo.load("eagle-d10"), sample) - sample.target
    expected = (gap.square().sum() / sample.target.square().sum()).sqrt().item()
    errors = [
        e["error"]
        for e in findings.details["seeds"]
        if e["depth"] == 4 and e["seed"] == zoo.metadata("eagle-d10")["seed"]
    ]
    assert errors == [pytest.approx(expected, rel=1e-6)]


@pytest.mark.parametrize(
    ("layers", "families", "expected"),
    [
        (1, ("gradient descent", "EAGLE"), True),
        (1, ("EAGLE",), False),
        (3, ("scheduled EAGLE",), True),
        (3, ("scheduled GD",), False),
        (3, (), False),
    ],
)
def test_what_each_depth_is_expected_to_be_named(layers, families, expected):
    assert depth.Seed(layers, 0, families, "EAGLE", None, 0.1).as_expected == expected
