"""Decoding against algebra: what is read out of the activations is what weights, solvers and polynomials say."""

from functools import cache

import pytest
import torch

from interp import certify, closed_form, unroll
from interp.decoding import Decoding, decode
from interp.solvers import iterate
from interp.stats import central_rms, pooled_errors, relative_errors
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


@pytest.mark.parametrize("name", ["linreg-softmax", "eagle-scalar"])
def test_contributions_sum_to_the_prediction(name: str):
    """A learned read-out answers from the input already; EAGLE prompts hold no answer."""
    model, prompts = zoo.load(name), zoo.prompts(name, 8, seed=31)
    found = decode(model, prompts)
    total = sum(part for layer in found.contributions for part in layer.values())
    assert relative_errors(total, model.double().predict(prompts.tokens)).max() < 1e-10
    assert sum(share for layer in found.shares() for share in layer.values()) == pytest.approx(1)
    first = found.contributions[0]["read-out of the input"]
    assert first.norm() > 0.1 * total.norm() if name == "linreg-softmax" else not first.any()


TRAINED = ["eagle", "eagle-noise", "eagle-d10", "eagle-deep", "eagle-scalar", "eagle-nystrom", "eagle-lowrank-2head"]


@pytest.mark.parametrize("name", TRAINED)
def test_the_closed_form_misses_a_trained_model_by_what_its_two_words_are_granted(name: str):
    """Polynomials against the two words iterated layer by layer on the prompts; all words are another rule, and what
    they are granted says nothing of the polynomials."""
    model, prompts = zoo.load(name), zoo.prompts(name, 16, seed=32)
    found, rule = decode(model, prompts), unroll(model)
    form = closed_form(rule)
    by_polynomials = prompts.B @ form.implicit_weights(prompts.A, prompts.C)
    distance = central_rms(pooled_errors(by_polynomials, model.double().predict(prompts.tokens)))
    granted = found.closed_form.core.central_rms_relative_error
    assert distance == pytest.approx(granted, rel=1e-6)
    assert found.closed_form.output.central_rms_relative_error == pytest.approx(granted, rel=1e-6)
    words = certify(rule, model, prompts).levels["words"].output
    assert found.closed_form.words.central_rms_relative_error == pytest.approx(words.central_rms_relative_error)
    assert abs(granted - words.central_rms_relative_error) > 1e-3 * granted


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
