"""Recipes: complete, named, and honest about what they know."""

from dataclasses import replace

import pytest
import torch

from interp.layout import Visibility
from models.prompts import CovarianceFactors, HaarNystrom, LogUniformSpectrum
from models.recipes import RECIPES, Recipe, recipe, recipe_from_dict

every_recipe = pytest.mark.parametrize("chosen", RECIPES.values(), ids=list(RECIPES))


@every_recipe
def test_round_trip(chosen):
    assert recipe_from_dict(chosen.to_dict()) == chosen


@every_recipe
def test_layout_fits_the_prompts(chosen):
    prompts = chosen.family.sample(1, seed=0)
    assert chosen.layout.d_model == prompts.tokens.shape[-1]
    assert chosen.layout.sign == (-1 if isinstance(chosen, Recipe) else 1)


@every_recipe
def test_the_loss_is_zero_at_the_answer_and_positive_elsewhere(chosen):
    target = chosen.training_prompts(0, torch.device("cpu")).target.double()
    assert chosen.loss(target, target).item() == 0
    assert chosen.loss(0 * target, target).item() > 0


@every_recipe
def test_no_shipped_recipe_is_told_the_solution(chosen):
    assert getattr(chosen, "gain", None) is None
    assert chosen.prior == "none" and chosen.to_dict()["prior"] == "none"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machines": 3}, "3 machines and 1 heads need a visibility for every head"),
        ({"visibility": (("machine", "none"),)}, "1 machines and 1 heads"),
        ({"machines": 2, "visibility": (("machine", "none"),) * 2}, "got 2"),
        ({"qk_rank": 16}, "qk_rank=16 must be a whole number between 1 and the 15 columns"),
        ({"value_rank": 0}, "value_rank=0 must be a whole number between"),
        ({"machines": 0}, "machines=0 must be a positive whole number"),
        ({"machines": 3, "visibility": (("machine", "context"),)}, "10 context rows cannot be split evenly over 3"),
        ({"machines": 2, "visibility": (("machine 7", "context"),)}, "a head serves machine 7 of 2"),
        ({"machines": 2, "visibility": (("some", "none"),)}, "unknown rule 'some'"),
    ],
)
def test_heads_and_machines_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        replace(RECIPES["eagle-d10"], **options)


def test_the_machines_and_ranks_of_a_recipe_reach_its_layout_and_sizes():
    heads, limited = RECIPES["eagle-distributed-heads"], RECIPES["eagle-lowrank"]
    assert heads.layout.machines == 3 and heads.layout.head_visibility(3)[2] == Visibility("machine 2", "machine 2")
    assert (limited.sizes.qk_rank, limited.sizes.value_rank, limited.sizes.d_head) == (5, 7, 7)


def test_a_gain_is_disclosed():
    told = replace(RECIPES["eagle-d10"], gain=9.0)
    assert told.prior == "layer l is scaled by 9^l" and told.to_dict()["prior"] == told.prior


def test_relative_error():
    chosen = Recipe("r", "", HaarNystrom(n=3, n_query=2), n_layers=1, steps=1, rate=0.1)
    target = torch.full((1, 2, 2), 2.0)
    assert chosen.errors(1.1 * target, target).item() == pytest.approx(0.01, rel=1e-4)
    assert chosen.loss(1.1 * target, target).item() == pytest.approx(torch.tensor(2.0).log().item(), rel=1e-4)


@pytest.mark.parametrize(
    "family", [LogUniformSpectrum(n=6, d=4, d_out=2, n_query=3), CovarianceFactors(rank=3)], ids=str
)
@pytest.mark.parametrize("error", ["squared", "relative"])
def test_spanning_queries_give_the_expected_error(family, error):
    """The error on spanning queries against the mean over many random ones, for half the true answer."""
    chosen = Recipe("r", "", replace(family, n_query=1), n_layers=1, steps=1, rate=0.1, error=error)
    spanning = chosen.training_family.sample(1, seed=0)
    half = chosen.errors(spanning.target / 2, spanning.target)
    if error == "relative":
        assert half.item() == pytest.approx(0.25)
        return
    samples = chosen.family.sample(20000, seed=1).target
    spans = chosen.training_family.sample(2000, seed=2).target
    expected = (samples / 2).square().mean().item()
    assert chosen.errors(spans / 2, spans).mean().item() == pytest.approx(expected, rel=0.1)


def test_squared_error_without_spanning_queries_is_a_mean_over_entries():
    chosen = Recipe("r", "", HaarNystrom(n=3, n_query=2), n_layers=1, steps=1, rate=0.1, error="squared")
    target = torch.zeros(1, 2, 2)
    assert chosen.errors(target + 3, target).item() == pytest.approx(9)


def test_a_misspelt_name_lists_the_known():
    with pytest.raises(
        ValueError, match=r"unknown recipe 'eagel'; known: eagle, .*eagle-d10, .*eagle-distributed-heads"
    ):
        recipe("eagel")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 0}, "n_layers=0 must be a positive whole number"),
        ({"rate": -1.0}, "rate=-1.0 must be positive"),
        ({"precision": "half"}, "unknown precision 'half'; known: float32, float64"),
        ({"error": "absolute"}, "unknown error 'absolute'; known: relative, squared"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(RECIPES["eagle-d10"], **change)
