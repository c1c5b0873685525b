"""Rules as solvers: iterates against the closed form, the states of the rule, and EAGLE."""

import numpy as np
import pytest
import torch

from interp import closed_form, unroll
from interp.solvers import EAGLE, T3, THEORY, LeastSquares, iterate, solve
from interp.stats import central_rms, relative_errors
from interp.unrolling.spectral import obstacle
from models import zoo
from models.constructions import PromptShape, eagle, gd_plus_plus, scheduled_eagle
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model, random_model

PROMPTS = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=3, kappa=20.0).sample(8, seed=0)
PROBLEM = LeastSquares(PROMPTS.A, PROMPTS.C)
SHAPE = PromptShape(4, 3, 2)
WAYS = {
    "GD++": gd_plus_plus(SHAPE, -0.2, 0.9, 4),
    "EAGLE": eagle(SHAPE, *THEORY, layers=5),
    "EAGLE, per n": eagle(PromptShape(4, 3, 2, scale="n"), -3.0, 9.0, layers=3),
    "scheduled": scheduled_eagle(SHAPE, [-1.2, -0.4, -0.9], [1.1, 1.9, 0.6]),
}
"""Every one with coefficients that its prompts bear."""


@pytest.mark.parametrize("construction", WAYS.values(), ids=WAYS)
def test_iterates_are_the_implicit_weights_at_every_depth(construction):
    rule = unroll(construction.model)
    form, w = closed_form(rule), iterate(rule.solver(), PROBLEM, rule.depth)
    assert form is not None
    for depth, state in enumerate(rule.states(construction.tokens(PROMPTS), "exact")):
        assert torch.allclose(w[depth], form.implicit_weights(PROMPTS.A, PROMPTS.C, depth), rtol=1e-10, atol=1e-10)
        assert torch.allclose(PROMPTS.B @ w[depth], rule.read(state), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_either_sign_of_the_read_out(sign: float):
    layout = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=3).layout(sign=sign)
    model = eagle_model([-0.9, -1.1], [0.9, 1.2], layout)
    w = iterate(unroll(model).solver(), PROBLEM, 2)[-1]
    assert torch.allclose(PROMPTS.B @ w, model.predict(PROMPTS.tokens), atol=1e-12)


@pytest.mark.parametrize("point", [THEORY, T3])
def test_rule_of_the_construction_is_eagle(point: tuple[float, float]):
    """Norms (2/3)^l ‖A_0‖ at theory constants, 3^(−l) ‖A_0‖ at T₃, against norms measured at every step."""
    rule, layers = unroll(eagle(SHAPE, *point, layers=5).model), 5
    prompts = LogUniformSpectrum(n=200, d=4, n_query=2, d_out=3, kappa=20.0).sample(4, seed=1)
    problem = LeastSquares(prompts.A, prompts.C)
    factor = 2 / 3 if point == THEORY else 1 / 3
    schedule = EAGLE(*point, norms=[factor**layer for layer in range(layers)])
    assert torch.allclose(iterate(rule.solver(), problem, layers), iterate(schedule, problem, layers), atol=1e-12)
    if point == THEORY:  # σ = 1 stays the largest; with T₃ too, to rounding, as T₃(1) = 1
        assert torch.allclose(iterate(rule.solver(), problem, layers), iterate(EAGLE(), problem, layers), atol=1e-12)


def test_t3_rule_is_a_chebyshev_polynomial():
    """r_L = ± T_{3^L}(σ)/(3^L σ), read off the iterates on a diagonal matrix."""
    sigma = torch.linspace(0.02, 1, 50, dtype=torch.float64)
    rule = unroll(eagle(PromptShape(50, 1, 1), *T3, layers=4).model)
    problem = LeastSquares(torch.diag(sigma)[None], sigma[None, :, None])
    for depth, w in enumerate(iterate(rule.solver(), problem, 4)):
        expected = np.cos(3**depth * np.arccos(sigma.numpy())) / (3**depth * sigma.numpy())
        assert np.allclose((-1) ** depth * (1 - w[0, :, 0].numpy()), expected, atol=1e-12)


def test_shipped_model_leaves_the_transformer():
    """The two words alone, as a solver, against the model's own answers."""
    model, prompts = zoo.load("eagle-d10").double(), zoo.prompts("eagle-d10", 64, seed=5)
    solver = unroll(model).solver()
    found = prompts.B @ iterate(solver, LeastSquares(prompts.A.double(), prompts.C.double()), solver.depth)[-1]
    assert central_rms(relative_errors(found, model.predict(prompts.tokens))) < 2e-3


@pytest.mark.parametrize("scale", ["none", "n"])
def test_norm_units_run_on_any_scale_and_size(scale: str):
    construction = eagle(PromptShape(4, 3, 2, scale=scale), *THEORY, layers=4, norm=1.0 if scale == "none" else 8**-0.5)
    rule = unroll(construction.model, prompts=construction.tokens(PROMPTS))
    solver = rule.solver("norm")
    assert solver.unit_free is not None
    assert np.allclose(solver.unit_free[0][:3], THEORY[0]) and np.allclose(solver.unit_free[1], THEORY[1])
    own, eagles = iterate(rule.solver(), PROBLEM, 4), iterate(EAGLE(), PROBLEM, 4)
    assert torch.allclose(iterate(solver, PROBLEM, 4), own, atol=1e-10)
    large = LogUniformSpectrum(n=40, d=9, n_query=1, d_out=1, kappa=9.0).sample(2, seed=3)
    for size in (1.0, 1e3):
        problem = LeastSquares(size * large.A, large.C)
        assert torch.allclose(size * iterate(solver, problem, 4), size * iterate(EAGLE(), problem, 4), atol=1e-10)
    assert torch.allclose(own, eagles, atol=1e-10)


def test_no_more_steps_than_layers():
    solver = unroll(WAYS["GD++"].model).solver()
    with pytest.raises(ValueError, match="the rule has 4 layers; ask for at most as many steps"):
        iterate(solver, PROBLEM, 5)
    found = solve(solver, PROBLEM)
    assert (found.steps == 4).all() and not found.converged.any()


def test_what_cannot_be_a_solver_says_why():
    rule = unroll(random_model(4, 2, 2, 1, seed=0))
    with pytest.raises(ValueError, match=r"no closed form to run: .* explain only"):
        rule.solver()
    assert obstacle(rule)
    with pytest.raises(ValueError, match=r"units='norm' needs .* pass prompts to unroll"):
        unroll(WAYS["EAGLE"].model).solver("norm")
    with pytest.raises(ValueError, match="units='metres' is unknown; known units: own, norm"):
        unroll(WAYS["EAGLE"].model).solver("metres")
