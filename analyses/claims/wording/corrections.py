"""Two slips of the texts: the sign of g, and a rate ρ^k that is called second order."""

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import median
from analyses.claims.systems import System, error_curve, log_uniform
from interp.convergence import order, rate
from interp.solvers import EAGLE, T3, THEORY

D, KAPPA, STEPS = 20, 1e3, 28
SIGN_KAPPA = 100.0
STEP_SIZES = (0.1, 0.5, 1.0)


def measure(prompts: int, settings: Settings) -> Findings:
    slow = log_uniform(KAPPA, (D, D), prompts, settings.seed, device=settings.device)
    system = log_uniform(SIGN_KAPPA, (2 * D, D), prompts, settings.seed, device=settings.device)
    sign, losses = _sign(system, settings)
    order_of, orders = _rate(slow, settings)
    return Findings({"sign": sign, "rate": order_of}, f"{losses}\n\n{orders}")


def loss_ratio(system: System, eta: float, sign: float, seed: int) -> Float[Tensor, "prompt"]:
    """‖A w₁ − C‖²/‖A w₀ − C‖² for w₁ = w₀ − η H⁻¹ g, g = sign · Σ x (y − wᵀx), H = AᵀA, from a random w₀."""
    A, C = system.problem.A, system.problem.C
    w = torch.randn(system.exact.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(A)
    before = C - A @ w
    g = sign * A.mT @ before
    after = C - A @ (w - eta * torch.linalg.solve(system.problem.G, g))
    return (after.flatten(1).square().sum(1) / before.flatten(1).square().sum(1)).cpu()


def _sign(system: System, settings: Settings) -> tuple[Measurement, str]:
    note = (
        f"H = AᵀA, η = 1, {system.prompts} prompts, {2 * D} × {D}, κ = {SIGN_KAPPA:g}, seed {settings.seed}: "
        "(1 + η)², as Σ x (y − wᵀx) is minus the gradient of ½‖y − Xw‖², against which a step ascends. Corrected, "
        "w ← w − η H⁻¹ Σ x (wᵀx − y), the ratio is (1 − η)²: 0 at η = 1. No η > 0 and no positive H mends it."
    )
    lines = ["loss after one step over loss before", f"{'η':<6}{'as written':>14}{'corrected':>14}"]
    for eta in STEP_SIZES:
        written, corrected = (float(loss_ratio(system, eta, sign, settings.seed).quantile(0.5)) for sign in (1.0, -1.0))
        lines.append(f"{eta:<6g}{written:>14.3g}{corrected:>14.2g}")
    return median(loss_ratio(system, 1.0, 1.0, settings.seed), note, settings.seed), "\n".join(lines)


def _rate(system: System, settings: Settings) -> tuple[Measurement, str]:
    errors = {name: error_curve(EAGLE(*pair), system, STEPS) for name, pair in (("T₃", T3), ("theory", THEORY))}
    fitted = {name: (order(curve, below=0.1), rate(curve, below=0.1)) for name, curve in errors.items()}
    (found, per_step), (theory, _) = fitted["T₃"], fitted["theory"]
    note = (
        f"Regression of log e_k+1 on log e_k below 0.1; d = {D}, {system.prompts} prompts, seed {settings.seed}. An "
        f"error that falls like ρ^k is first order: T₃ is linear, a factor {per_step.value:.3f} a step (1/3 in σ r, "
        f"whatever κ). Theory's (1/3, 1), which training does not find, has order {theory.value:.2f}: there the error "
        "falls like ρ^(2^k)."
    )
    table = "\n".join([f"κ = {KAPPA:g}", *(f"{name}: {pair[0]}; {pair[1]}" for name, pair in fitted.items())])
    return Measurement(found.value, (found.low, found.high), note), table
