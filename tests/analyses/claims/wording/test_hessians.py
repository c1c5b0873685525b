import pytest
import torch

from analyses.claims.wording.hessians import _damped_fit, damped

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


def test_eagle_d10_starts_with_a_gradient_step_and_is_damped_less_and_less():
    fits = damped("eagle-d10").details["damped-hessian"]
    assert fits[0]["residual"] < 1e-5
    assert fits[0]["lam"] > fits[1]["lam"] > fits[2]["lam"] > fits[3]["lam"]
