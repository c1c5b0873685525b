import json
import math

import pytest
import torch

from interp import certify, unroll
from interp.stats import ErrorSummary, central_rms, relative_errors
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
    assert [len(row.words) for row in rule.function.table] == list(range(1, 9))
    assert errors[0] > 0.1 > 2e-3 > errors[1] >= 0.5 * errors[-1]


def test_refit_is_kept_only_where_it_helps(fitted):
    """The certificate on other prompts is no worse than that of the least squares on the weights, up to its scatter."""
    model, rule = fitted
    fresh = FAMILY.sample(512, seed=2)
    plain = certify(unroll(model), model, fresh).levels["words"].output.rms_relative_error
    assert certify(rule, model, fresh).levels["words"].output.rms_relative_error <= 1.05 * plain
    assert set(rule.source.values()) <= {"weights", "function"}


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
    assert certificate.task.blown_up == int((relative_errors(model.predict(tokens), target) > 1).sum()) >= 3
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
