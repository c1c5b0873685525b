import json
import math
from dataclasses import replace

import pytest
import torch

from interp import certify, unroll
from interp.stats import ErrorSummary, central_rms, pooled_errors, relative_errors
from interp.unrolling.fit import _refit
from models.constructions.construction import PromptShape
from models.constructions.distributed import distributed_eagle
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model, linear_model, random_model, random_tokens

FAMILY = LogUniformSpectrum(n=10, d=5, n_query=2, d_out=3, kappa=10.0)
ETA, GAMMA = [-1.33, -2.4, -5.0], [1.33, 2.4, 5.0]


def noisy_eagle(noise: float):
    return eagle_model(ETA, GAMMA, FAMILY.layout(sign=-1), noise=noise)


@pytest.fixture(scope="module")
def fitted():
    model = noisy_eagle(1e-3)
    return model, unroll(model, prompts=FAMILY.sample(256, seed=1))


def test_core_of_eagle_is_its_two_words(fitted):
    _, rule = fitted
    names = [set(layer.labelled("core")) for layer in rule.layers]
    assert names == [{"z_x S_xx → x", "z_x S_xy → y"}, {"z_x S_xx → x", "z_x S_xy → y"}, {"z_x S_xy → y"}]
    assert rule.function.reached
    errors = [row.rms_relative_error for row in rule.function.table]
    assert [len(row.words) for row in rule.function.table] == [1, 2, 8] and rule.function.exhaustive
    assert errors[0] > 0.1 > 2e-3 > errors[1] >= 0.5 * errors[-1]


def test_refit_is_kept_only_where_it_helps(fitted):
    """The certificate on other prompts is no worse than that of the least squares on the weights, up to its scatter."""
    model, rule = fitted
    fresh = FAMILY.sample(512, seed=2)
    plain = certify(unroll(model), model, fresh).levels["words"].output.rms_relative_error
    assert certify(rule, model, fresh).levels["words"].output.rms_relative_error <= 1.05 * plain


def test_a_refit_is_taken_where_it_lowers_the_held_out_error_and_only_there():
    sources = []
    for seed in (4, 5):
        model = eagle_model(ETA, GAMMA, FAMILY.layout(sign=-1), noise=1e-2, seed=seed)
        prompts = FAMILY.sample(128, seed=seed)
        rule, weights = unroll(model, prompts=prompts), unroll(model)
        held_out = prompts.tokens[1::2]
        exact = rule.predict(held_out, "exact")
        chosen, plain = (central_rms(pooled_errors(r.predict(held_out, "words"), exact)) for r in (rule, weights))
        plain_words = weights.layers[0].labelled("words")
        refitted = rule.layers[0].labelled("words") != pytest.approx(plain_words, rel=1e-9, abs=1e-12)
        assert (rule.source["words"] == "function") == refitted
        assert chosen < plain if refitted else chosen == pytest.approx(plain, rel=1e-6)
        assert f"all words, coefficients from {rule.source['words']}" in str(rule)
        sources.append(rule.source["words"])
    assert set(sources) == {"function", "weights"}


def noisy_query_model():
    """EAGLE with Gaussian noise on W_Q, a tenth as large, so that rows are updated by what their y says too."""
    model, generator = eagle_model(ETA, [0.9, 2.0, 4.0], FAMILY.layout(sign=-1)), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for block in model.blocks:
            noise = torch.randn(block.attn.W_Q.shape, generator=generator, dtype=torch.float64)
            block.attn.W_Q += 0.1 * block.attn.W_Q.norm() * noise / noise.norm()
    return model


def test_noise_free_eagle_is_explained_to_rounding():
    model = noisy_eagle(0.0)
    rule = unroll(model, prompts=FAMILY.sample(64, seed=1))
    certificate = certify(rule, model, FAMILY.sample(64, seed=2))
    for level in certificate.levels.values():
        assert level.output.max_relative_error < 1e-10
        assert all(1 - layer.function_explained < 1e-18 for layer in level.layers)
    assert max(certificate.conserved) < 1e-9
    assert all(layer.weights_explained == pytest.approx(1.0, abs=1e-14) for layer in rule.layers)


def test_certificate_is_of_the_model_and_not_of_the_rule(fitted):
    """A rule of another model fails at every level, by the size of the difference."""
    model, rule = fitted
    other = eagle_model(ETA, [1.33, 2.4, 5.5], FAMILY.layout(sign=-1), noise=1e-3)
    certificate = certify(rule, other, FAMILY.sample(64, seed=3))
    assert all(level.output.median_relative_error > 1e-2 for level in certificate.levels.values())
    assert certify(rule, model, FAMILY.sample(64, seed=3)).levels["exact"].output.max_relative_error < 1e-10


def test_random_weights_fail_at_the_level_of_words():
    model = random_model(5, 3, 3, 2, seed=0)
    tokens = random_tokens(model, 64, 10, seed=0)
    rule = unroll(model, prompts=tokens)
    certificate = certify(rule, model, random_tokens(model, 64, 10, seed=1))
    assert certificate.task is None
    assert certificate.levels["exact"].output.max_relative_error < 1e-10
    assert certificate.levels["words"].output.median_relative_error > 0.1
    assert not rule.function.reached and "NOT REACHED" in str(rule)


def test_layer_fidelity_is_the_literatures(fitted):
    """Squared Frobenius error of the next state over the number of its entries, by hand."""
    model, rule = fitted
    prompts = FAMILY.sample(33, seed=5)
    layer = certify(rule, model, prompts).levels["core"].layers[0]
    z, after = list(rule.states(prompts.tokens, "exact"))[:2]
    guess = z + rule.step(0, z, "core")
    by_hand = (guess - after).square().flatten(1).mean(1).median().item()
    assert layer.fidelity == pytest.approx(by_hand, rel=1e-9)
    assert layer.fidelity_no_update == pytest.approx((after - z).square().flatten(1).mean(1).median().item(), rel=1e-9)


def test_task_error_and_blown_up_prompts():
    model = noisy_eagle(0.0)
    prompts = FAMILY.sample(200, seed=4)
    factor = torch.ones(200, 1, 1, dtype=torch.float64)
    factor[:3] = 6  # ‖A‖ = 6: outside of the domain, the iteration explodes
    tokens, target = factor * prompts.tokens, factor * prompts.target
    certificate = certify(unroll(model), model, type(prompts)(tokens, target))
    assert certificate.task is not None
    squared = (model.predict(tokens) - target).square().mean((1, 2))
    assert certificate.task.blown_up == int((squared > target.square().mean()).sum()) >= 3
    quantiles = certificate.task.squared_error_quantiles
    assert quantiles["0.9"] == pytest.approx(squared.quantile(0.9, interpolation="nearest").item(), rel=1e-9)
    assert quantiles["0.1"] < quantiles["0.5"] == certificate.task.squared_error_quantiles["0.5"] < quantiles["0.9"]
    assert certificate.task.median_squared_error < 1 < certificate.task.mean_squared_error
    assert certificate.task.central_mean_squared_error <= certificate.task.mean_squared_error


def test_float32_model_is_certified_in_float64_and_left_alone(fitted):
    model = noisy_eagle(1e-3).float()
    certificate = certify(unroll(model), model, FAMILY.sample(32, seed=1))
    assert certificate.levels["exact"].output.max_relative_error < 1e-10
    assert model.blocks[0].attn.W_Q.dtype == torch.float32


def test_too_few_prompts_are_refused():
    with pytest.raises(ValueError, match="3 prompts are too few"):
        unroll(noisy_eagle(0.0), prompts=FAMILY.sample(3, seed=0))


def test_core_needs_prompts():
    rule = unroll(noisy_eagle(0.0))
    with pytest.raises(ValueError, match=r"no level 'core'.*pass prompts"):
        rule.predict(FAMILY.sample(3, seed=0).tokens, "core")


def test_certificate_as_plain_values(fitted):
    model, rule = fitted
    values = json.loads(json.dumps(certify(rule, model, FAMILY.sample(16, seed=0)).to_dict()))
    assert {"exact", "words", "core", "prompts", "dtype"} <= set(values)
    assert {"max_relative_error", "rms_relative_error", "prompts", "dtype"} <= set(values["core"])


def test_two_groups_are_fitted_together():
    """Context rows that see their machine, queries that see all, with other steps: both groups' words come back."""
    from interp import BlockLayout, Visibility

    layout = BlockLayout.standard(
        x=5,
        y=3,
        n_query=2,
        sign=-1,
        machines=2,
        visibility=(Visibility("machine", "none"), Visibility("none", "context")),
    )
    Q = torch.diag(torch.tensor([1.0] * 5 + [0.0] * 3)).double().expand(2, 2, -1, -1)
    V = torch.stack([torch.diag(torch.tensor([-c] * 5 + [-c] * 3)).double() for c in (1.0, 0.8)]).expand(2, 2, -1, -1)
    model = linear_model(Q, V, layout)
    rule = unroll(model, prompts=FAMILY.sample(64, seed=0))
    first = rule.layers[0].labelled("words")
    assert first["context: z_x S_own_xx → x"] == pytest.approx(-1.0)
    assert first["query: z_x S_xx → x"] == pytest.approx(-0.8)
    certificate = certify(rule, model, FAMILY.sample(64, seed=1))
    assert certificate.levels["core"].output.max_relative_error < 1e-10


def test_summary_of_errors():
    errors = torch.tensor([0.1] * 199 + [10.0], dtype=torch.float64)
    summary = ErrorSummary.of(errors)
    assert summary.max_relative_error == 10.0 and summary.median_relative_error == pytest.approx(0.1)
    assert summary.central_rms_relative_error == pytest.approx(0.1)
    assert summary.rms_relative_error == pytest.approx(math.sqrt((199 * 0.01 + 100) / 200))
    assert central_rms(errors) == summary.central_rms_relative_error
    broken = torch.tensor([[1.0], [float("nan")]])
    assert relative_errors(broken, torch.ones(2, 1)).tolist() == [0.0, math.inf]


def test_conserved_quantity_is_not_conserved_by_other_models():
    """Rows whose update depends on their y move D − B A⁺ C, where η ≠ −γ."""
    model = noisy_query_model()
    certificate = certify(unroll(model), model, FAMILY.sample(64, seed=1))
    assert certificate.conserved[0] == 0 and min(certificate.conserved[1:]) > 1e-4


def test_norms_of_the_context_are_spectral_and_of_the_mean_where_the_kernel_divides():
    prompts = LogUniformSpectrum(n=16, d=4, n_query=2, d_out=3, kappa=10.0, scale=2.0).sample(64, seed=0)
    eye, value = torch.diag(torch.tensor([1.0] * 4 + [0.0] * 3)), torch.diag(torch.tensor([-0.1] * 4 + [-0.1] * 3))
    layout = LogUniformSpectrum(n=16, d=4, n_query=2, d_out=3, kappa=10.0).layout(sign=-1)
    for scale, expected in (("none", 2.0), ("n", 0.5)):
        model = linear_model(eye.double()[None, None], value.double()[None, None], layout, scale)
        rule = unroll(model, prompts=prompts)
        assert rule.function.context_norm[0] == pytest.approx((expected, expected), rel=1e-9)


def test_more_words_than_can_be_searched_are_dropped_one_by_one():
    """Three blocks have more than eight words; the core is the two of EAGLE, and the text says how it was found."""
    from interp import BlockLayout

    layout = BlockLayout.standard(x=3, y=2, other=1, n_query=2, sign=-1)
    Q = torch.diag(torch.tensor([1.0] * 3 + [0.0] * 3)).double().expand(2, 1, -1, -1)
    V = torch.diag(torch.tensor([-0.9] * 3 + [-0.9] * 2 + [0.0])).double().expand(2, 1, -1, -1)
    model = linear_model(Q, V, layout)
    rule = unroll(model, prompts=random_tokens(model, 32, 8, seed=0))
    assert not rule.function.exhaustive and rule.function.reached
    assert set(rule.layers[0].labelled("core")) == {"z_x S_xx → x", "z_x S_xy → y"}
    assert "dropping one after the other" in str(rule)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (torch.zeros(0, 12, 8), "at least one prompt"),
        (torch.zeros(12, 8), r"got a tensor \[12, 8\]"),
        (torch.zeros(3, 12, 7), "8 columns .*, the prompts 7"),
        (torch.full((3, 12, 8), float("nan")), "NaN or inf"),
        (torch.zeros(3, 2, 8), "no context"),
        ([[1.0]], "got a list"),
    ],
)
def test_prompts_that_are_none_are_refused(prompts: object, message: str):
    model = noisy_eagle(0.0)
    for use in (lambda: unroll(model, prompts=prompts), lambda: certify(unroll(model), model, prompts)):
        with pytest.raises(ValueError, match=message):
            use()


def test_rules_of_other_models_are_refused():
    rule = unroll(noisy_eagle(0.0))
    with pytest.raises(ValueError, match="3 layers and the model 2"):
        certify(rule, eagle_model([-1.0] * 2, [1.0] * 2, FAMILY.layout(sign=-1)), FAMILY.sample(4, seed=0))
    prompts = FAMILY.sample(4, seed=0)
    with pytest.raises(ValueError, match="targets are"):
        certify(rule, noisy_eagle(0.0), replace(prompts, target=prompts.target[:, :1]))


def test_a_layout_of_the_wrong_sign_shows_in_the_certificate():
    """The certificate is against the model's own answer, not against what the rule's layout reads."""
    model = noisy_eagle(0.0)
    wrong = unroll(model, FAMILY.layout(sign=1))
    certificate = certify(wrong, model, FAMILY.sample(16, seed=0))
    assert certificate.levels["exact"].output.median_relative_error > 0.5


def test_levels_without_coefficients_are_refused():
    with pytest.raises(ValueError, match="no coefficients"):
        unroll(noisy_eagle(0.0)).layers[0].labelled("exact")


def test_a_word_that_does_nothing_leaves_the_refit_of_the_others_alone():
    """The queries' y columns are 0 before the first layer: words that read them have no effect there."""
    shape, steps = PromptShape(d=5, d_out=3, n_query=2), ([-0.5, -0.9], [0.5, 1.1], [-0.2, -0.3], [0.2, 0.4])
    model = distributed_eagle(shape, 2, *steps).model
    prompts = FAMILY.sample(64, seed=3)
    rule = unroll(model, prompts=prompts, core_error=1e-9)
    exact = list(rule.states(prompts.tokens[::2], "exact"))
    found = [_refit(rule, exact, {word for item in rule.layers[0].groups for word in item.projected}) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    context, query = found[0][0]
    for fitted, eta, gamma in ((context, -0.5, 0.5), (query, -0.2, 0.2)):
        by_name = {str(word): value for word, value in fitted.items()}
        assert by_name.pop("z_x S_xx → x") == pytest.approx(eta, abs=1e-10)
        assert by_name.pop("z_x S_xy → y") == pytest.approx(-gamma, abs=1e-10)
        assert max(map(abs, by_name.values())) < 1e-10
