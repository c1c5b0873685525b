import json
from dataclasses import replace

import pytest
import torch

from interp import identify, unroll
from interp.identification.verdict import Identification
from interp.kernels import AttentionKernel
from models import zoo
from models.config import TransformerConfig
from models.constructions import (
    CONSTRUCTIONS,
    T3,
    THEORY,
    Construction,
    PromptShape,
    eagle,
    gradient_descent,
    scheduled_eagle,
)
from models.constructions.decoys import DECOYS
from models.constructions.disguises import disguised
from models.constructions.mistakes import MISTAKES
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer
from tests.builders import eagle_model

SIZES = {"d": 4, "d_out": 2, "n": 12, "layers": 4, "n_query": 2}
FAMILY = LogUniformSpectrum(n=12, d=4, n_query=2, d_out=2, kappa=5.0)
SHAPE = PromptShape(d=4, d_out=2, n_query=2)


def answer(construction: Construction, seed: int = 0, noise: float = 0.0) -> Identification:
    """Of the construction in disguise, on prompts."""
    model = disguised(construction.model, seed, noise)
    return identify(model, replace(construction, model=model).tokens(FAMILY.sample(32, seed=seed)))


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_every_family_is_named_in_disguise(name: str, noise: float):
    for seed in (11, 12):
        construction = CONSTRUCTIONS[name](seed, **SIZES)
        found = answer(construction, seed, noise)
        assert found.verdict == name and found.families == (name,)
        assert found.ranking[0].holds and found.ranking[0].relative_error < 0.5
        if noise == 0:
            assert found.ranking[0].relative_error < 1e-8


@pytest.mark.parametrize("name", DECOYS)
def test_no_decoy_gets_a_name(name: str):
    for seed in (21, 22, 23):
        found = answer(DECOYS[name](seed, **SIZES), seed)
        assert found.verdict == "unknown" and found.families == () and found.settings == {}
        assert found.margin is None and found.notes


@pytest.mark.parametrize("name", ["wrong sign of η", "wrong sign of γ", "corrupted layer"])
def test_the_offending_layer_is_named(name: str):
    decoy = DECOYS[name](5, **SIZES)
    assert f"layer {decoy.settings['layer']}" in answer(decoy).notes[0]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_member_by_mistake_gets_the_larger_name(name: str):
    mistake = MISTAKES[name](31, **SIZES)
    assert answer(mistake).verdict == mistake.family != mistake.settings["of"]


def test_settings_come_back():
    found = answer(CONSTRUCTIONS["heavy ball"](41, **SIZES))
    true = CONSTRUCTIONS["heavy ball"](41, **SIZES).settings
    assert {name: found.settings[name] for name in ("gamma", "beta")} == pytest.approx(
        {name: true[name] for name in ("gamma", "beta")}, rel=1e-6
    )


@pytest.mark.parametrize(("point", "name", "order"), [(THEORY, "theory", 2), (T3, "T₃", 1)])
def test_named_points_of_eagle(point: tuple[float, float], name: str, order: int):
    found = answer(eagle(SHAPE, *point, layers=4))
    assert found.verdict == "EAGLE" and found.order == order and found.degree == 40
    assert any(name in note for note in found.notes)


def test_one_layer_is_a_tie_and_says_what_would_tell():
    found = answer(gradient_descent(SHAPE, 0.9, layers=1))
    assert found.verdict == "tie" and {"gradient descent", "Chebyshev nodes", "EAGLE"} <= set(found.families)
    assert "a deeper model" in found.notes[0] and "a tie of" in str(found)


def test_two_layers_of_two_steps_are_a_tie():
    found = identify(unroll(eagle_model([0.0, 0.0], [0.9, 0.6], FAMILY.layout(sign=-1))))
    assert found.verdict == "tie" and set(found.families) == {"Chebyshev nodes", "scheduled GD"}


def test_degree_and_order_of_descent():
    found = answer(gradient_descent(SHAPE, 0.9, layers=3))
    assert (found.verdict, found.order, found.degree) == ("gradient descent", 1, 3)


def test_margin_is_to_the_best_family_that_does_not_hold_it():
    found = answer(scheduled_eagle(SHAPE, [-0.3, -0.9, -0.5], [0.8, 1.9, 1.1]))
    others = [entry.relative_error for entry in found.ranking if not entry.holds]
    assert found.margin == pytest.approx(min(others) - found.ranking[0].relative_error) and found.margin > 0.01


def test_without_prompts_the_weights_are_judged():
    model = eagle_model([-0.3, -0.5], [0.8, 1.5, 1.0][:2], FAMILY.layout(sign=-1))
    found = identify(unroll(model))
    assert found.judged_on == "the weights" and found.verdict in ("tie", "scheduled EAGLE")


def test_a_read_out_that_does_not_negate_is_unknown():
    found = identify(unroll(eagle_model([-0.3, -0.5], [0.8, 1.0], FAMILY.layout(sign=1))))
    assert found.verdict == "unknown" and "does not negate" in found.notes[0]


@pytest.mark.parametrize("name", zoo.names())
def test_trained_models_are_eagle(name: str):
    """With a schedule of its own; in the published setting the steps are nearly one (η, γ), that of T₃."""
    found = identify(zoo.load(name), zoo.prompts(name, 256, seed=5))
    steps = next(entry.settings for entry in found.ranking if entry.family == "EAGLE")
    if name == "eagle":
        assert found.verdict in ("EAGLE", "scheduled EAGLE")
        assert (steps["eta"], steps["gamma"]) == pytest.approx((-4 / 3, 4 / 3), rel=0.05)
    else:
        assert found.verdict == "scheduled EAGLE" and found.margin is not None and found.margin > 0.005


def test_answers_are_plain_values_and_text():
    found = answer(CONSTRUCTIONS["preconditioned GD"](3, **SIZES))
    values = json.loads(json.dumps(found.to_dict()))
    assert values["verdict"] == "preconditioned GD" and len(values["settings"]["preconditioners"]) == 4
    assert {"family", "relative_error", "settings"} <= set(values["ranking"][0])
    assert "4 matrices" in str(found)


def test_kernels_that_are_no_functional_descent():
    layout = FAMILY.layout(sign=-1)
    prompts = FAMILY.sample(8, seed=0)

    def model(**options: object) -> HookedTransformer:
        return HookedTransformer(TransformerConfig(2, 1, 6, 6, **options), layout).double()

    assert identify(model(kernel=AttentionKernel("gaussian")), prompts).verdict == "unknown"
    assert "no family" in identify(model(kernel=AttentionKernel("exp", scale="n")), prompts).notes[0]
    with pytest.raises(ValueError, match=r"softmax.*interp\.hooks\.capture"):
        identify(model(kernel=AttentionKernel("exp", "sum")), prompts)
    with pytest.raises(ValueError, match="MLPs"):
        identify(model(kernel=AttentionKernel("exp"), attn_only=False, d_mlp=4), prompts)


def test_functional_descent_predicts_as_the_model_does():
    construction = CONSTRUCTIONS["functional GD"](8, **SIZES)
    found = answer(construction)
    assert found.degree is None and found.ranking[0].relative_error < 1e-10
    assert found.settings["similarity"] == construction.settings["similarity"]
    assert found.settings["bandwidth"] == pytest.approx(construction.settings["bandwidth"], rel=1e-6)


def test_prompts_of_another_width_are_refused():
    with pytest.raises(ValueError, match="6 columns"):
        identify(
            zoo.load("eagle-d10").__class__(TransformerConfig(1, 1, 6, 6), FAMILY.layout(sign=-1)),
            torch.zeros(2, 14, 5),
        )
