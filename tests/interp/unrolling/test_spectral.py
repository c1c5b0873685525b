import math

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import BlockLayout, closed_form, unroll
from interp.layout import Visibility
from interp.unrolling.spectral import ClosedForm, obstacle
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model, random_model

FAMILY = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=3, kappa=20.0)
STEPS = st.lists(st.tuples(st.floats(-1.4, 0), st.floats(0.1, 1.5)), min_size=1, max_size=4)


@given(steps=STEPS, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_closed_form_is_the_state_of_the_rule(steps: list[tuple[float, float]], seed: int):
    """A_l = A p(G), C_l = r(AAᵀ) C, B_l = B p(G), D_l = −B s(G) AᵀC against the states of the exact rule."""
    eta, gamma = [e for e, _ in steps], [g for _, g in steps]
    layout = FAMILY.layout(sign=-1)
    rule = unroll(eagle_model(eta, gamma, layout))
    form, prompts = closed_form(rule), FAMILY.sample(3, seed=seed)
    assert form is not None
    A, B, C = prompts.A, prompts.B, prompts.C
    g, U = torch.linalg.eigh(A.mT @ A)

    def of(values: torch.Tensor) -> torch.Tensor:
        return U * values[:, None, :] @ U.mT

    x, y = layout.slices["x"], layout.slices["y"]
    for depth, state in enumerate(rule.states(prompts.tokens, "exact")):
        p, _, s = form.evaluate(g, depth)
        if depth < rule.depth:
            assert torch.allclose(state[:, :8, x], A @ of(p), atol=1e-12)
            assert torch.allclose(state[:, 8:, x], B @ of(p), atol=1e-12)
            residual = C - A @ of(s) @ A.mT @ C
            assert torch.allclose(state[:, :8, y], residual, atol=1e-12)
        assert torch.allclose(state[:, 8:, y], -B @ of(s) @ A.mT @ C, atol=1e-12)
        assert torch.allclose(rule.read(state), B @ form.implicit_weights(A, C, depth), atol=1e-12)


@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_every_layer_is_one_preconditioned_gradient_step(steps: list[tuple[float, float]]):
    """r = 1 − g s, and s_{l+1} = s_l + H_l⁻¹ (1 − g s_l)."""
    form, g = ClosedForm(tuple(e for e, _ in steps), tuple(c for _, c in steps)), np.linspace(0.01, 1, 7)
    for layer in range(form.depth):
        _, r, s = form.evaluate(g, layer)
        assert np.allclose(r, 1 - g * s, atol=1e-12)
        assert np.allclose(form.evaluate(g, layer + 1)[2], s + form.inverse_hessian(g, layer) * (1 - g * s), atol=1e-12)


def test_t3_is_a_chebyshev_polynomial():
    """(4/3, 4/3) in units of 1/‖A_l‖² = 9^l gives σ r_L(σ²) = ± T_{3^L}(σ) / 3^L."""
    depth = 4
    units = [4 / 3 * 9**layer for layer in range(depth)]
    form, sigma = ClosedForm(tuple(-u for u in units), tuple(units)), np.linspace(0.01, 1, 50)
    for layers in range(1, depth + 1):
        expected = np.cos(3**layers * np.arccos(sigma)) / 3**layers
        assert np.allclose(np.abs(sigma * form.evaluate(sigma**2, layers)[1]), np.abs(expected), atol=1e-12)


def test_coefficient_lists_evaluate_to_the_recursion():
    form, g = ClosedForm((-1.2, -0.7, 0.0), (1.1, 0.9, 0.8)), 0.3
    listed = form.coefficients()
    assert listed is not None
    for depth in range(4):
        for name, value in zip("prs", form.evaluate(g, depth), strict=True):
            assert np.polynomial.polynomial.polyval(g, listed[name][depth]) == pytest.approx(value, rel=1e-13)
    assert [len(c) - 1 for c in listed["r"]] == [0, 1, 4, 13]  # (3^l − 1) / 2
    deep = ClosedForm((-1.0,) * 6, (1.0,) * 6).coefficients()
    assert [len(c) for c in deep["r"]] == [1, 2, 5, 14, 41, 122]  # as far as depth 5
    rounding = ClosedForm((-4 / 3, -12.0, -108.0, -972.0), (4 / 3, 12.0, 108.0, 972.0)).rounding()
    assert max(rounding[:3]) < 1e-9 and rounding[4] > 1  # what JSON's lists are good for, said beside them
    symbol = sympy.Symbol("g")
    assert sympy.expand(form.evaluate(symbol, 1)[1] - (1 - 1.1 * symbol)) == 0


def test_per_n_is_in_units_of_the_mean():
    layout = FAMILY.layout(sign=-1)
    eye = torch.diag(torch.tensor([1.0] * 4 + [0.0] * 3)).double()[None, None]
    value = torch.diag(torch.tensor([-1.0] * 4 + [-0.9] * 3)).double()[None, None]
    from tests.builders import linear_model

    model = linear_model(eye.repeat(2, 1, 1, 1), value.repeat(2, 1, 1, 1), layout, scale="n")
    form, prompts = closed_form(unroll(model)), FAMILY.sample(3, seed=0)
    assert form is not None and form.per_n
    assert torch.allclose(
        prompts.B @ form.implicit_weights(prompts.A, prompts.C), model.predict(prompts.tokens), atol=1e-13
    )


def test_what_has_no_closed_form_says_why():
    cases = {
        "explain only": random_model(4, 2, 2, 1, seed=0),
        "not all rows see the same context": random_model(
            4, 2, 2, 1, seed=0, visibility=Visibility("machine", "context")
        ),
    }
    for reason, model in cases.items():
        rule = unroll(model)
        assert closed_form(rule) is None and reason in (obstacle(rule) or "")
    three = BlockLayout.standard(x=3, y=2, constant=1, n_query=2)
    from tests.builders import linear_model

    rule = unroll(linear_model(*torch.ones(2, 1, 1, 6, 6, dtype=torch.float64), three))
    assert "3 column blocks" in (obstacle(rule) or "")
    assert math.isclose(closed_form(unroll(eagle_model([-1.0], [1.0], FAMILY.layout(sign=-1)))).share, 1.0)


def test_heads_that_only_queries_use_have_no_closed_form():
    """Context rows do not move, so the polynomials would be false."""
    layout = BlockLayout.standard(x=4, y=2, n_query=2, sign=-1, visibility=Visibility("none", "context"))
    rule = unroll(eagle_model([-0.5, -0.6], [0.5, 0.6], layout))
    assert closed_form(rule) is None and "not all rows" in (obstacle(rule) or "")


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_implicit_weights_predict_for_either_sign(sign: float):
    layout = FAMILY.layout(sign=sign)
    model, prompts = eagle_model([-0.9, -1.1], [0.9, 1.2], layout), FAMILY.sample(3, seed=2)
    form = closed_form(unroll(model))
    assert form is not None and (form.form == "EAGLE") == (sign < 0)
    assert torch.allclose(
        prompts.B @ form.implicit_weights(prompts.A, prompts.C), model.predict(prompts.tokens), atol=1e-12
    )


@pytest.mark.parametrize(
    ("eta", "gamma", "expected"),
    [
        ([-1.0, -1.0], [1.0, 1.0], "EAGLE"),
        ([-1e-6, 1e-6], [0.9, 0.8], "gradient descent"),
        ([0.0, 0.0], [0.9, 0.8], "gradient descent"),
        ([0.0, 0.0], [0.9, -0.8], None),
        ([0.4, 0.0], [0.9, 0.8], None),
    ],
)
def test_form_by_the_signs_of_the_steps(eta: list[float], gamma: list[float], expected: str | None):
    assert ClosedForm(tuple(eta), tuple(gamma)).form == expected
