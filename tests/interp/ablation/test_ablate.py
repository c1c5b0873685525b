import math

import pytest
import torch

from interp.ablation import (
    Measure,
    Reference,
    Runs,
    ablate,
    ablate_head,
    ablate_layer,
    ablate_mlp,
    ablate_word,
    early_exit,
    everything,
    kernel_swaps,
    remove_word,
    two_word_core,
    without_word,
    word_named,
)
from interp.hooks import capture, hook_name
from interp.kernels import KERNELS
from interp.protocol import check_protocol
from interp.solvers import GradientDescent, LeastSquares, iterate
from interp.unrolling import closed_form, unroll
from models import zoo
from models.constructions.construction import PromptShape
from models.constructions.eagle import T3, THEORY, eagle
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer
from tests.interp.ablation.test_swaps import ours, prompts


def relative(first: torch.Tensor, second: torch.Tensor) -> float:
    return ((first - second).flatten(1).norm(dim=1) / second.flatten(1).norm(dim=1)).max().item()


def test_skipping_a_layer_hands_its_input_on():
    model, tokens = ours(KERNELS["softmax"]), prompts()
    runs, source = Runs(model, tokens), Reference.of(model, tokens)
    last = runs.predictions(ablate_layer(source, [2], "zero"))
    assert torch.allclose(last, runs.predictions(early_exit(model, 2)), atol=1e-13)
    assert torch.allclose(runs.read(runs._read_out(runs.stream[3])), runs.clean)


def test_mean_and_resampled_values_are_those_of_the_reference():
    model, tokens = ours(KERNELS["softmax"]), prompts()
    source = Reference.of(model, tokens, seed=3)
    name = hook_name("mlp_out", 1)
    clean = capture(model, tokens, [name])[name]
    assert torch.equal(source.value(name, "mean"), clean.mean(0, keepdim=True))
    assert torch.equal(source.value(name, "resample"), clean[source.donors])
    assert not (source.donors == torch.arange(6)).any() and len(set(source.donors.tolist())) == 6
    assert torch.equal(source.donors, Reference.of(model, tokens, seed=3).donors)


def test_a_head_that_writes_nothing_is_not_missed():
    model, tokens = ours(KERNELS["softmax"]), prompts()
    with torch.no_grad():
        model.blocks[1].attn.W_O[0] = 0
    runs, source = Runs(model, tokens), Reference.of(model, tokens)
    for mode in ("zero", "mean", "resample"):
        assert torch.allclose(runs.predictions(ablate_head(source, 1, [0], mode)), runs.clean, atol=1e-14)
        assert not torch.allclose(runs.predictions(ablate_head(source, 1, [1], mode)), runs.clean, atol=1e-6)


def test_effects_and_intervals_by_hand():
    clean = torch.arange(1.0, 9, dtype=torch.float64)[:, None, None]
    measure = Measure({"size": lambda p: p[:, 0, 0]}, clean)
    effect = measure.effects(clean + 1)["size"]
    assert (effect.clean, effect.value, effect.change) == pytest.approx((4.5, 5.5, 1.0))
    assert effect.interval == pytest.approx((1, 1)) and effect.is_clear
    broken = measure.effects(clean * torch.inf)["size"]
    assert math.isinf(broken.value) and math.isinf(broken.interval[0])
    with pytest.raises(ValueError, match="must give one number for each prompt"):
        measure_of_the_wrong_shape = Measure({"bad": lambda p: p}, clean)
        assert measure_of_the_wrong_shape


def test_everything_with_a_metric_of_ones_own():
    model, tokens = ours(KERNELS["softmax"], layers=2), prompts()
    rows = []
    plan = everything(model, tokens)
    found = ablate(model, tokens, plan, metrics={"first": lambda p: p[:, 0, 0]}, on_row=rows.append)
    assert len(found.rows) == len(plan) == len(rows) == 2 * 8 * 3 + 2 * 2 * 3 + 2 * 3 + 2 * 3 + 2
    assert found.prefix_reused and found.clean["first"] == pytest.approx(model.predict(tokens)[:, 0, 0].mean().item())
    assert found.of("kernel", "softmax")[0].effects["moved"].value <= 1e-14
    assert "early exit" in str(found) and len(found.to_dict()["rows"]) == len(plan)


@pytest.mark.parametrize("settings", [THEORY, T3])
@pytest.mark.parametrize("scale", ["none", "n"])
def test_eagle_without_conditioning_is_scheduled_descent(settings, scale: str):
    model = eagle(PromptShape(d=4, d_out=2, n_query=2, scale=scale), *settings, layers=3).model
    data = LogUniformSpectrum(n=6, d=4, n_query=2, d_out=2, kappa=5.0).sample(8, seed=0)
    rule = unroll(model)
    word, form = word_named(rule, "conditioning"), closed_form(rule)
    assert form is not None
    per = 6 if scale == "n" else 1
    w = iterate(GradientDescent(tuple(gamma / per for gamma in form.gamma)), LeastSquares(data.A, data.C), 3)[-1]
    assert relative(without_word(rule, word).predict(data.tokens), data.B @ w) <= 1e-10
    assert relative(Runs(model, data.tokens).predictions(remove_word(model, rule, word)), data.B @ w) <= 1e-10


def test_the_core_of_a_trained_eagle():
    model, data = zoo.load("eagle-d10").double(), zoo.prompts("eagle-d10", 32, seed=7)
    rule = unroll(model)
    core, form = two_word_core(rule), closed_form(rule)
    assert form is not None
    w = iterate(GradientDescent(form.gamma), LeastSquares(data.A, data.C), 4)[-1]
    assert relative(without_word(core, word_named(rule, "conditioning")).predict(data.tokens), data.B @ w) <= 1e-10
    found = ablate_word(model, data)
    assert found.rule_to_descent is not None and found.rule_to_descent <= 1e-10
    assert "diverges" in found.remark and found.shrinkage[0] == 1 and found.model_to_descent is not None
    assert "γ_l ‖A_l‖²/‖A_0‖²" in str(found)


def test_refusals():
    model = zoo.load("eagle-d10").double()
    with pytest.raises(ValueError, match="the model has no MLPs to ablate"):
        ablate_mlp(Reference.of(model, zoo.prompts("eagle-d10", 4).tokens), None, "zero")
    with pytest.raises(ValueError, match="the rule has no word 'x'; it has: conditioning, step"):
        word_named(unroll(model), "x")
    with pytest.raises(ValueError, match="depth 5 is out of range"):
        early_exit(model, 5)
    with pytest.raises(ValueError, match="unknown mode 'one'; known: zero, mean, resample"):
        ablate_head(Reference.of(model, zoo.prompts("eagle-d10", 4).tokens), 0, None, "one")


class AnswersElsewhere(HookedTransformer):
    """A model of the protocol whose read-out has another name."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        z = self.hook_embed(self.embed(tokens))
        for block in self.blocks:
            z = block(z)
        return self.answer(self.ln_final(z))


def test_a_model_without_unembed_is_ablated_in_whole_passes_and_has_no_exits():
    own, tokens = ours(KERNELS["softmax"]), prompts()
    theirs = AnswersElsewhere(own.cfg, own.layout).double()
    theirs.load_state_dict(own.state_dict())
    theirs.answer = theirs.unembed
    del theirs.unembed
    swaps = kernel_swaps(own, ["uniform"], [1])
    same, found = (ablate(model, tokens, swaps) for model in (own, theirs))
    assert same.prefix_reused and not found.prefix_reused
    assert found.rows[0].effects["moved"].value == pytest.approx(same.rows[0].effects["moved"].value, rel=1e-12)
    assert not any(item.kind == "exit" for item in everything(theirs, tokens))
    with pytest.raises(ValueError, match="has no unembed"):
        ablate(theirs, tokens, [early_exit(theirs, 1)])
    assert "has no unembed" in check_protocol(theirs, tokens).asks["early exits"]
