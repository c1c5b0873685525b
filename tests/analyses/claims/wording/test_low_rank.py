import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.wording.low_rank import (
    RANGE,
    conditioned_residuals,
    measure,
    newton_fit,
    newton_fits,
    steps_of,
)
from interp.unrolling import closed_form, unroll
from models.constructions import PromptShape, eagle, rank_limited_eagle, scheduled_eagle
from models.prompts import LogUniformSpectrum


@pytest.mark.parametrize("relative", [False, True])
def test_a_low_rank_newton_step_is_found(relative):
    generator = torch.Generator().manual_seed(0)
    A, gradient = (torch.randn(6, 8, size, generator=generator, dtype=torch.float64) for size in (8, 2))
    U = torch.linalg.qr(torch.randn(8, 3, generator=generator, dtype=torch.float64))[0].expand(6, 8, 3)
    gram, eye = A.mT @ A, torch.eye(3, dtype=torch.float64)
    inner = U.mT @ gram @ U
    mean = inner.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] if relative else inner.diagonal(dim1=1, dim2=2).mean()
    step = -0.7 * U @ torch.linalg.solve(inner + 0.1 * mean * eye, U.mT @ gradient)
    fit = newton_fit(U, gram, gradient, step, torch.eye(8, dtype=torch.float64).expand(6, 8, 8), relative)
    assert fit.residual < 1e-10  # .1 is one of the values that are tried
    assert fit.eta == pytest.approx(0.7)


def test_implicit_weights_are_those_of_the_closed_form():
    prompts = LogUniformSpectrum(n=7, d=4, n_query=3, d_out=2, kappa=5).sample(3, seed=0)
    rule = unroll(scheduled_eagle(PromptShape(4, 2, 3), [-1.1, -2.0, -3.0], [1.2, 2.5, 4.0]).model)
    steps = steps_of(rule, prompts)
    form = closed_form(rule)
    assert form is not None
    for depth, w in enumerate(steps.weights):
        assert torch.allclose(w, form.implicit_weights(prompts.A, prompts.C, depth), atol=1e-10)
    assert torch.allclose(prompts.B @ steps.weights[-1], rule.predict(prompts.tokens, "exact"), atol=1e-10)
    assert torch.allclose(steps.queries[0], torch.eye(4, dtype=torch.float64))


def test_the_first_step_of_a_full_head_is_a_gradient_step():
    prompts = LogUniformSpectrum(n=6, d=4, n_query=2, d_out=1, kappa=5).sample(8, seed=1)
    fits = newton_fits(steps_of(unroll(eagle(PromptShape(4, 1, 2), -4 / 3, 4 / 3, 2).model), prompts), prompts)[RANGE]
    assert fits[0].residual < 1e-5 < 1e-2 < fits[1].residual


def test_low_rank_takes_the_best_reading_of_every_layer():
    findings = measure("eagle-d10", 8, Settings())  # of full rank: the same readings
    readings = findings.details["low-rank-newton"].values()
    best = [min(fit["residual"] for fit in fits) for fits in zip(*readings, strict=True)]
    assert findings.measurements["low-rank-newton"].value == max(best)


def test_a_rank_limited_step_is_a_gradient_step_in_conditioned_directions():
    prompts = LogUniformSpectrum(n=7, d=5, n_query=2, d_out=2, kappa=5).sample(4, seed=2)
    generator = torch.Generator().manual_seed(0)
    frames = [[torch.linalg.qr(torch.randn(5, 2, generator=generator, dtype=torch.float64))[0]] for _ in range(3)]
    model = rank_limited_eagle(PromptShape(5, 2, 2), [-1.0] * 3, [1.2] * 3, frames).model
    steps = steps_of(unroll(model), prompts)
    assert max(conditioned_residuals(steps, prompts)) < 1e-10
    fits = newton_fits(steps, prompts)[RANGE]
    assert fits[0].residual < 1e-5  # the first layer has nothing conditioned: λ → ∞
    assert fits[2].residual > 1e-2
