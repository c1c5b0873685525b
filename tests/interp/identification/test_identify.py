import json
from dataclasses import replace

import pytest
import torch

from interp import identify, unroll
from interp.identification.verdict import Identification
from interp.kernels import AttentionKernel
from interp.layout import Visibility
from models import zoo
from models.config import TransformerConfig
from models.constructions import (
    CONSTRUCTIONS,
    T3,
    THEORY,
    VARIANTS,
    Construction,
    PromptShape,
    eagle,
    gradient_descent,
    one_head_a_machine,
    scheduled_eagle,
)
from models.constructions.decoys import DECOYS
from models.constructions.disguises import disguised
from models.constructions.heads import weights_of
from models.constructions.mistakes import MISTAKES
from models.constructions.weights import model_from
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
        assert found.ranking[0].holds and found.ranking[0].relative_error < 0.05
        if noise == 0:
            assert found.ranking[0].relative_error < 1e-8


@pytest.mark.parametrize("name", ["distributed EAGLE, one head a machine", "scheduled EAGLE, complementary heads"])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_variants_of_a_family_get_its_name(name: str, noise: float):
    for seed in (11, 12):
        construction = VARIANTS[name](seed, **SIZES)
        found = answer(construction, seed, noise)
        assert found.verdict == construction.family == name.partition(",")[0]
        for step in ("eta", "gamma"):
            assert found.settings[step] == pytest.approx(
                construction.settings[step][: len(found.settings[step])], rel=20 * noise + 1e-9
            )


def machines_apart(machine: int, factor: float) -> HookedTransformer:
    """One head a machine, with the steps of one machine changed in layer 1."""
    model = one_head_a_machine(SHAPE, 3, [-0.4, -0.6, -0.9], [0.8, 1.5, 2.0]).model
    with torch.no_grad():
        model.blocks[1].attn.W_O[machine] *= factor
    return model


def test_machines_with_steps_of_their_own():
    found = identify(machines_apart(2, 0.5), FAMILY.sample(32, seed=0))
    assert found.verdict == "distributed EAGLE"
    assert found.settings["gamma"] == [pytest.approx(0.8), pytest.approx([1.5, 1.5, 0.75])]
    assert found.settings["query_eta"] == [pytest.approx(-0.4), pytest.approx([-0.6, -0.6, -0.3])]
    assert found.settings["spread"] == pytest.approx([0.0, 0.6, 0.0], abs=1e-12)
    json.dumps(found.to_dict())


def test_a_machine_that_ascends_is_named():
    found = identify(machines_apart(1, -1.0), FAMILY.sample(32, seed=0))
    assert found.verdict == "unknown" and "layer 1: machine 1, " in found.notes[0]


@pytest.mark.parametrize("rules", [("machine 0", "machine 1"), ("machine 1", "context"), ("machine 1", "none")])
def test_machines_that_are_not_all_served_are_no_family(rules: tuple[str, str]):
    layout = SHAPE.layout(machines=2, visibility=[Visibility(rules[0], "machine 0"), Visibility("machine 0", rules[1])])
    construction = eagle_model([-0.3, -0.5], [0.8, 1.0], FAMILY.layout(sign=-1))
    weights = {name: weight.expand(-1, 2, -1, -1) for name, weight in weights_of(construction).items()}
    model = model_from(replace(construction.cfg, n_heads=2), layout, weights)
    assert identify(model, FAMILY.sample(16, seed=0)).verdict == "unknown"


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
    found = identify(unroll(eagle_model([-0.3, -0.5, -0.2], [0.8, 1.5, 1.0], FAMILY.layout(sign=-1))))
    assert found.judged_on == "the weights" and found.verdict == "scheduled EAGLE"


def test_a_read_out_that_does_not_negate_is_unknown():
    found = identify(unroll(eagle_model([-0.3, -0.5], [0.8, 1.0], FAMILY.layout(sign=1))))
    assert found.verdict == "unknown" and "does not negate" in found.notes[0]


OTHERS = {
    "eagle-depth1": ("tie", "coincide at depth 1"),
    "eagle-depth2": ("unknown", "nearest is scheduled EAGLE"),
    "eagle-depth3": ("unknown", "nearest is scheduled EAGLE"),
    "eagle-noise": ("unknown", "the words leave out"),
    "eagle-lowrank": ("unknown", "the words leave out"),
    "eagle-distributed": ("distributed EAGLE", "the words leave out at most"),
    "lsa-1layer": ("tie", "coincide at depth 1"),
    "eagle-distributed-heads": ("unknown", "nearest is distributed EAGLE, but layer 0: the words leave out"),
}
"""Trained models that are not EAGLE with a schedule, and what is said of them."""


@pytest.mark.parametrize("name", OTHERS)
def test_trained_models_that_are_something_else_or_nothing_known(name: str):
    found = identify(zoo.load(name), zoo.prompts(name, 64, seed=5))
    verdict, note = OTHERS[name]
    assert found.verdict == verdict and note in found.notes[0]


@pytest.mark.parametrize("name", [name for name in zoo.names() if name.startswith("eagle") and name not in OTHERS])
def test_trained_models_are_eagle(name: str):
    """With a schedule of its own; in the published setting the steps are nearly one (η, γ), that of T₃."""
    found = identify(zoo.load(name), zoo.prompts(name, 256, seed=5))
    steps = next(entry.settings for entry in found.ranking if entry.family == "EAGLE")
    if name == "eagle":
        assert found.verdict in ("EAGLE", "scheduled EAGLE")
        assert (steps["eta"], steps["gamma"]) == pytest.approx((-4 / 3, 4 / 3), rel=0.05)
    else:
        assert found.verdict == "scheduled EAGLE" and found.margin is not None and found.margin > 0.005


def test_the_trained_single_layer_has_the_step_of_its_setting():
    """The best step for n = d = 10 uniform inputs is 20/33 (the moments of the inputs say so)."""
    found = identify(zoo.load("lsa-1layer"), zoo.prompts("lsa-1layer", 256, seed=5))
    assert found.ranking[0].relative_error < 0.01
    assert found.settings["gamma"] == pytest.approx(20 / 33, rel=0.005)


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


def heads_added(
    construction: Construction, entries: dict[tuple[str, str], float], value: dict[tuple[str, str], object]
):
    """The construction with one more head in every layer."""
    from models.constructions.weights import linear_model, place

    model = construction.model
    layout = model.layout
    Q = torch.stack(
        [torch.stack([*(b.attn.W_Q @ b.attn.W_K.mT).detach(), place(layout, entries)]) for b in model.blocks]
    )
    V = torch.stack([torch.stack([*(b.attn.W_V @ b.attn.W_O).detach(), place(layout, value)]) for b in model.blocks])
    return replace(construction, model=linear_model(Q, V, layout))


def with_constant(construction: Construction) -> Construction:
    """The same words in a layout with a constant column."""
    from models.constructions.weights import from_heads, place

    layout = SHAPE.layout({"constant": 1})
    query, value = place(layout, {("x", "x"): 1.0}), place(layout, {("y", "y"): -0.9})
    return replace(construction, model=from_heads([[(query, value)]] * 3, layout))


@pytest.mark.parametrize("size", [0.02, 0.05, 0.15])
def test_descent_that_also_answers_from_memory_is_unknown(size: float):
    plain = with_constant(gradient_descent(SHAPE, 0.9, layers=3))
    answer_head = torch.tensor([[size, -size / 2]], dtype=torch.float64)
    spoilt = heads_added(plain, {("constant", "constant"): 1.0}, {("constant", "y"): answer_head})
    assert identify(plain.model, plain.tokens(FAMILY.sample(32, seed=0))).verdict == "gradient descent"
    assert identify(spoilt.model, spoilt.tokens(FAMILY.sample(32, seed=0))).verdict == "unknown"


@pytest.mark.parametrize("size", [0.02, 0.05, 0.1])
def test_words_beside_a_preconditioner_are_not_noise(size: float):
    """z_y S_yy and the like are exact words; the matrices of preconditioned GD do not excuse them."""
    spoilt = heads_added(
        gradient_descent(SHAPE, 0.9, layers=3), {("y", "y"): 1.0}, {("y", "y"): 4 * size, ("x", "x"): size}
    )
    assert identify(spoilt.model, spoilt.tokens(FAMILY.sample(32, seed=0))).verdict == "unknown"


def test_a_matrix_that_is_not_symmetric_is_no_preconditioner():
    from models.constructions.weights import from_heads, place

    layout = FAMILY.layout(sign=-1)
    P = torch.diag(torch.tensor([1.0, 0.8, 0.6, 0.4], dtype=torch.float64))
    P[0, 1], P[1, 0] = 0.1, -0.1
    model = from_heads([[(place(layout, {("x", "x"): P}), place(layout, {("y", "y"): -1.0}))]] * 3, layout)
    found = identify(model, FAMILY.sample(32, seed=0))
    assert found.verdict == "unknown" and any("not symmetric" in (entry.problem or "") for entry in found.ranking)


@pytest.mark.parametrize("gamma", [[0.9, 0.0, 0.9], [0.9, 0.9, 0.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("with_prompts", [True, False])
def test_layers_that_do_nothing_are_no_member(gamma: list[float], with_prompts: bool):
    model = eagle_model([0.0] * 3, gamma, FAMILY.layout(sign=-1))
    found = identify(model, FAMILY.sample(8, seed=0) if with_prompts else None)
    assert found.verdict == "unknown" and f"layer {gamma.index(0.0)}" in found.notes[0]


def test_prompts_that_say_nothing_do_not_make_a_member():
    decoy = DECOYS["wrong sign of η"](3, **SIZES)
    for scale in (0.0, 1e-120):
        tokens = scale * decoy.tokens(FAMILY.sample(8, seed=0))
        assert identify(decoy.model, tokens).verdict == "unknown"
    with pytest.raises(ValueError, match="overflows on every prompt"):
        identify(decoy.model, 1e120 * decoy.tokens(FAMILY.sample(8, seed=0)))


def test_momentum_must_be_one_over_n():
    """v ← .8 v and y ← y + .4 v is no heavy ball, whatever n would make it one."""
    from models.constructions.weights import from_heads, linear_heads, place

    shape = PromptShape(d=4, d_out=2, n_query=2, scale="n", n=12)
    layout = shape.layout({"constant": 1, "velocity": 2}, symmetry={"velocity": "y"})
    gradient = place(layout, {("x", "x"): 1.0}), place(layout, {("y", "y"): -4.0, ("y", "velocity"): -4.0})
    heads = [gradient, *linear_heads(layout, {"velocity": 1.0}, {"y": 0.4, "velocity": -0.2})]
    model = from_heads([heads] * 3, layout, "n")
    tokens = replace(CONSTRUCTIONS["heavy ball"](1, **SIZES), model=model).tokens(FAMILY.sample(32, seed=0))
    assert identify(model, tokens).verdict == "unknown"


def test_one_input_column_is_no_constant():
    prompts = LogUniformSpectrum(n=12, d=1, n_query=2, d_out=2, kappa=1.0).sample(16, seed=0)
    layout = LogUniformSpectrum(n=12, d=1, n_query=2, d_out=2, kappa=1.0).layout(sign=-1)
    found = identify(eagle_model([0.0] * 3, [0.9, 0.2, 1.5], layout), prompts)
    assert "averaging" not in found.families and "scheduled GD" in found.families


@pytest.mark.parametrize("similarity", ["relu", "elu1"])
def test_feature_maps_of_turned_inputs_are_another_kernel(similarity: str):
    layout = FAMILY.layout(sign=-1)
    model = HookedTransformer(TransformerConfig(2, 1, 6, 6, kernel=AttentionKernel(similarity)), layout).double()
    turn = torch.zeros(6, 6, dtype=torch.float64)
    noise = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turn[:4, :4] = torch.linalg.qr(noise)[0]
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q[0], block.attn.W_K[0] = turn, turn
            block.attn.W_V[0] = torch.diag(torch.tensor([0.0] * 4 + [-0.1] * 2)).double()
            block.attn.W_O[0] = torch.eye(6, dtype=torch.float64)
    assert identify(model, FAMILY.sample(16, seed=0)).verdict == "unknown"


def test_small_heads_of_other_kernels_add_up():
    construction = CONSTRUCTIONS["functional GD"](8, **SIZES)
    model = construction.model
    heads, generator = 9, torch.Generator().manual_seed(1)
    cfg = replace(model.cfg, n_heads=heads)
    crowded = HookedTransformer(cfg, model.layout).double()
    with torch.no_grad():
        for block, plain in zip(crowded.blocks, model.blocks, strict=True):
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                weight = getattr(plain.attn, name)[0]
                getattr(block.attn, name)[:] = weight
            block.attn.W_V[1:] *= 0.09
            scales = 0.2 + torch.rand(heads - 1, 1, 1, generator=generator, dtype=torch.float64)
            block.attn.W_Q[1:] *= scales
            block.attn.W_K[1:] *= scales
    assert identify(crowded, FAMILY.sample(16, seed=0)).verdict == "unknown"


def test_eagle_says_which_other_constants_its_weights_allow():
    found = answer(eagle(SHAPE, -1.4, 1.0, layers=4))
    assert found.verdict == "EAGLE" and any("η = -1.4, γ = 1" in note for note in found.notes)


@pytest.mark.parametrize(
    ("family", "block"), [("averaging", "constant"), ("ridge GD", "label"), ("heavy ball", "velocity")]
)
def test_columns_that_do_not_hold_what_a_family_needs(family: str, block: str):
    """The words are those of the family; on prompts whose columns hold something else they are not the algorithm."""
    construction = CONSTRUCTIONS[family](4, **SIZES)
    tokens, layout = construction.tokens(FAMILY.sample(16, seed=0)), construction.model.layout
    assert identify(construction.model, tokens).verdict == family
    tokens[..., layout.slices[block]] += 0.3
    found = identify(construction.model, tokens)
    assert found.verdict != family
    assert any(f"column block {block}" in (entry.problem or "") for entry in found.ranking)


def test_one_distributed_layer_has_no_name_of_its_own():
    found = answer(CONSTRUCTIONS["distributed EAGLE"](4, **{**SIZES, "layers": 1}))
    assert found.verdict == "unknown"
