import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.wording.hessians import _damped_fit, _newton_fit, damped, implicit_steps, low_rank, low_rank_fits
from interp.unrolling import closed_form, unroll
from models.constructions import PromptShape, eagle, scheduled_eagle
from models.prompts import LogUniformSpectrum

G = torch.logspace(-2, 0, 200, dtype=torch.float64)


@pytest.mark.parametrize(("eta", "lam"), [(1.3, 0.2), (0.8, -0.003)])
def test_a_damped_hessian_is_found(eta, lam):
    fit = _damped_fit(G, eta / (G + lam))
    assert fit.residual < 2e-2
    assert fit.lam == pytest.approx(lam, rel=0.1)
    assert fit.eta == pytest.approx(eta, rel=0.05)


def test_a_gradient_step_is_the_limit_of_large_damping():
    fit = _damped_fit(G, torch.full_like(G, 1.7))
    assert fit.residual < 1e-5
    assert fit.eta / fit.lam == pytest.approx(1.7, rel=1e-4)


@pytest.mark.parametrize("relative", [False, True])
def test_a_low_rank_newton_step_is_found(relative):
    generator = torch.Generator().manual_seed(0)
    A, gradient = (torch.randn(6, 8, size, generator=generator, dtype=torch.float64) for size in (8, 2))
    U = torch.linalg.qr(torch.randn(8, 3, generator=generator, dtype=torch.float64))[0].expand(6, 8, 3)
    gram, eye = A.mT @ A, torch.eye(3, dtype=torch.float64)
    inner = U.mT @ gram @ U
    mean = inner.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] if relative else inner.diagonal(dim1=1, dim2=2).mean()
    step = -0.7 * U @ torch.linalg.solve(inner + 0.1 * mean * eye, U.mT @ gradient)
    fit = _newton_fit(U, gram, gradient, step, torch.eye(8, dtype=torch.float64).expand(6, 8, 8), relative)
    assert fit.residual < 1e-10  # .1 is one of the values that are tried
    assert fit.eta == pytest.approx(0.7)


def test_implicit_weights_are_those_of_the_closed_form():
    prompts = LogUniformSpectrum(n=7, d=4, n_query=3, d_out=2, kappa=5).sample(3, seed=0)
    rule = unroll(scheduled_eagle(PromptShape(4, 2, 3), [-1.1, -2.0, -3.0], [1.2, 2.5, 4.0]).model)
    weights, queries, own = implicit_steps(rule, prompts)
    form = closed_form(rule)
    assert form is not None
    for depth, w in enumerate(weights):
        assert torch.allclose(w, form.implicit_weights(prompts.A, prompts.C, depth), atol=1e-10)
    assert torch.allclose(prompts.B @ weights[-1], rule.predict(prompts.tokens, "exact"), atol=1e-10)
    assert all(basis.shape == (4, 4) for basis in own)
    assert torch.allclose(queries[0], torch.eye(4, dtype=torch.float64))


def test_the_first_step_of_a_full_head_is_a_gradient_step():
    prompts = LogUniformSpectrum(n=6, d=4, n_query=2, d_out=1, kappa=5).sample(8, seed=1)
    fits = low_rank_fits(unroll(eagle(PromptShape(4, 1, 2), -4 / 3, 4 / 3, 2).model), prompts)["U of Q"]
    assert fits[0].residual < 1e-5 < 1e-2 < fits[1].residual


def test_eagle_d10_starts_with_a_gradient_step_and_is_damped_less_and_less():
    fits = damped("eagle-d10").details["damped-hessian"]
    assert fits[0]["residual"] < 1e-5
    assert fits[0]["lam"] > fits[1]["lam"] > fits[2]["lam"] > fits[3]["lam"]


def test_low_rank_takes_the_best_reading_of_every_layer():
    findings = low_rank("eagle-d10", 8, Settings())  # of full rank: the same readings
    readings = findings.details["low-rank-newton"].values()
    best = [min(fit["residual"] for fit in fits) for fits in zip(*readings, strict=True)]
    assert findings.measurements["low-rank-newton"].value == max(best)
