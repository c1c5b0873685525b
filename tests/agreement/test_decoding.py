"""Decoding against algebra: what is read out of the activations is what weights, solvers and polynomials say."""

from functools import cache

import pytest
import torch

from interp import certify, closed_form, unroll
from interp.decoding import Decoding, decode
from interp.solvers import iterate
from interp.stats import central_rms, relative_errors
from interp.unrolling import ClosedForm
from interp.unrolling.spectral import see_one_context
from models import zoo
from models.constructions import CONSTRUCTIONS, VARIANTS, Construction
from models.prompts import LogUniformSpectrum
from tests.agreement.test_constructions import LAYERS, SOLVERS, problem_of

N, D, OUT = 12, 3, 2
PROMPTS = LogUniformSpectrum(n=N, d=D, n_query=2, d_out=OUT, kappa=4).sample(4, seed=3)
TWO_WORDS = ("gradient descent", "Chebyshev nodes", "scheduled GD", "GD++", "EAGLE", "scheduled EAGLE")
IN_TOKENS_OF_THEIR_OWN = "gradient descent, alternating tokens"
"""Its labels are in rows without inputs, so the layout's A and C are no regression problem."""
SOLVED = [name for name in SOLVERS if name != IN_TOKENS_OF_THEIR_OWN]
LAST_DEPTH_ONLY = ("Chebyshev nodes",)
"""Nodes in any order give the semi-iteration's last iterate alone."""
UNIT = {"EAGLE": lambda s: [norm**-2 for norm in s["norms"]]}


@cache
def decoded(name: str, seed: int) -> tuple[Construction, Decoding]:
    built = (CONSTRUCTIONS | VARIANTS)[name](seed, D, OUT, N, LAYERS, 2)
    return built, decode(built.model, built.tokens(PROMPTS))


def steps_of(built: Construction) -> ClosedForm:
    """The polynomials of a construction's own settings; nothing is extracted from its weights."""

    def each(value: object) -> list[float]:
        return list(value) if isinstance(value, list | tuple) else [value] * LAYERS

    settings = built.settings
    unit = UNIT.get(built.family, lambda s: [1.0] * LAYERS)(settings)
    eta = [a * b for a, b in zip(each(settings.get("eta", 0.0)), unit, strict=True)]
    if "gamma" in settings:
        gamma = [a * b for a, b in zip(each(settings["gamma"]), unit, strict=True)]
    else:
        gamma = [-layer["z_x S_xy → y"] for layer in (item.labelled("words") for item in unroll(built.model).layers)]
    return ClosedForm(tuple(eta), tuple(gamma), per_n=settings["scale"] == "n")


@pytest.mark.parametrize("name", SOLVED)
def test_implicit_weights_are_the_solvers_iterates(name: str):
    built, found = decoded(name, 0)
    expected = iterate(SOLVERS[name](built.settings), problem_of(built, PROMPTS), LAYERS)
    depths = slice(LAYERS, None) if name in LAST_DEPTH_ONLY else slice(None)
    torch.testing.assert_close(found.weights[depths], expected[depths], rtol=1e-10, atol=1e-10)
    assert found.is_linear and found.agreement.max() < 1e-10 and found.mixed_agreement.max() < 1e-10


@pytest.mark.parametrize("name", SOLVED)
def test_weights_that_are_linear_in_the_labels_are_their_derivative_times_the_labels(name: str):
    _, found = decoded(name, 0)
    torch.testing.assert_close(
        torch.einsum("lpdonk,pnk->lpdo", found.mixed, PROMPTS.C), found.weights, rtol=1e-10, atol=1e-12
    )
    answer = torch.einsum("lponk,pnk->lpo", found.label_sensitivity, PROMPTS.C)
    torch.testing.assert_close(answer, (PROMPTS.B[:, :1] @ found.weights)[:, :, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TWO_WORDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_mixed_derivative_of_a_construction_is_s_of_G(name: str, seed: int):
    built, found = decoded(name, seed)
    form = steps_of(built)
    scale = N if form.per_n else 1
    g, basis = torch.linalg.eigh(PROMPTS.A.mT @ PROMPTS.A / scale)
    for depth in range(LAYERS + 1):
        s = (basis * (form.evaluate(g, depth)[2] / scale)[:, None]) @ basis.mT
        torch.testing.assert_close(found.weights[depth], s @ PROMPTS.A.mT @ PROMPTS.C, rtol=1e-10, atol=1e-10)
        assert (found.hessian.s[depth] - s).norm() <= 1e-10 * max(1, s.norm())
        gap = s @ PROMPTS.A.mT @ PROMPTS.A - torch.eye(D).double()
        expected = gap.flatten(1).norm(dim=1) / D**0.5
        torch.testing.assert_close(found.hessian.relative_error[depth], expected, rtol=1e-9, atol=1e-10)
    assert found.hessian.remainder.max() < 1e-10 and found.hessian.off_diagonal.max() < 1e-6
    assert found.closed_form.weights.max() < 1e-10 and found.closed_form.spectrum.max() < 1e-10


@pytest.mark.parametrize("name", TWO_WORDS)
def test_the_step_is_gamma_p_squared_where_it_is_determined(name: str):
    built, decoding = decoded(name, 1)
    found, form = decoding.hessian, steps_of(built)
    scale = N if form.per_n else 1
    for layer in range(LAYERS):
        expected = form.inverse_hessian(found.g / scale, layer) / scale
        known = ~found.steps[layer].isnan()
        assert known.any()
        torch.testing.assert_close(found.steps[layer][known], expected[known], rtol=1e-7, atol=1e-9)
        r = form.evaluate(found.g / scale, layer)[1]
        assert torch.equal(known, r.abs() > 1e-3)


@pytest.mark.parametrize("name", [name for name in zoo.names() if name.startswith("eagle")])
def test_the_roads_meet_on_models_that_ship(name: str):
    model, prompts = zoo.load(name), zoo.prompts(name, 4, seed=31)
    found = decode(model, prompts)
    assert found.roads == ("jacobian", "unit queries", "exact rule") and found.is_linear
    assert found.agreement.max() < 1e-8
    assert found.mixed_agreement.max() < 1e-7
    rule = unroll(model)
    assert (found.hessian is None) == (not see_one_context(rule)) == ("inverse Hessian" in found.undefined)
    total = sum(part for layer in found.contributions for part in layer.values())
    assert relative_errors(total, model.double().predict(prompts.tokens)).max() < 1e-10
    assert sum(share for layer in found.shares() for share in layer.values()) == pytest.approx(1)
    assert relative_errors(prompts.B @ found.weights[-1], model.predict(prompts.tokens)).max() < 1e-10


TRAINED = ["eagle-d10", "eagle-deep", "eagle-scalar", "eagle-nystrom", "eagle-lowrank-2head"]


@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_stay_within_the_certificate_of_their_words(name: str):
    """The polynomials of two words miss the prediction by what the certificate of these two words says, and w and s by
    no more than what `interp unroll` grants to words."""
    model, prompts = zoo.load(name), zoo.prompts(name, 16, seed=32)
    found = decode(model, prompts)
    rule = unroll(model, prompts=zoo.prompts(name, 256, seed=33), core_error=0.02)
    assert all(len(layer.labelled("core")) <= 2 for layer in rule.layers)
    form, levels = closed_form(rule), certify(rule, model, prompts).levels
    distance = relative_errors(form.implicit_weights(prompts.A, prompts.C), found.weights[-1])
    granted = levels["core"].output
    by_polynomials = prompts.B @ form.implicit_weights(prompts.A, prompts.C)
    moved = relative_errors(by_polynomials, rule.predict(prompts.tokens, "core"))
    assert moved.max() < 1e-9
    assert central_rms(distance) < 3 * granted.central_rms_relative_error
    assert found.closed_form.words.central_rms_relative_error < 1e-2
    assert found.closed_form.weights.median(1).values.max() < 1e-2
    assert found.closed_form.spectrum.median(1).values.max() < 1e-2


def test_a_softmax_transformer_ends_near_the_inverse_hessian():
    """Its local weights are the fit's, by the depth at which it answers, and no road says that they are one for all."""
    found = decode(zoo.load("linreg-softmax"), zoo.prompts("linreg-softmax", 8, seed=31))
    assert found.roads == ("jacobian", "unit queries") and not found.is_linear
    errors = [entry["inverse_hessian_relative_error"] for entry in found.by_depth()]
    assert errors[0] == pytest.approx(1) and errors[-1] == min(errors) < 0.2
    assert 1e-4 < found.nonlinearity[-1].median() < 0.1
    assert found.agreement[-1].max() > found.nonlinearity[-1].median()


def test_rows_that_are_no_regression_problem_are_refused():
    with pytest.raises(ValueError, match="least-squares weights of prompt 0 are 0"):
        decoded(IN_TOKENS_OF_THEIR_OWN, 0)
