"""Their picture of the Hessian estimate, H = G + λI, and how such pictures are fitted."""

from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement
from interp.unrolling import ClosedForm, closed_form, unroll
from models import zoo
from models.prompts import LogUniformSpectrum

POINTS = 400
DAMPINGS = 121  # values of λ that are tried, log-spaced
FAR = 1e6  # λ from 1/FAR to FAR times the scale of G


@dataclass(frozen=True)
class Fit:
    """η, λ and ‖step − fit‖/‖step‖ of a layer."""

    eta: float
    lam: float
    residual: float


def damped(name: str) -> Findings:
    """γ_l p_l(g)² against η_l/(g + λ_l) over the spectrum that a model of the zoo was trained on."""
    family = zoo.family(name)
    form = closed_form(unroll(zoo.load(name)))
    if form is None or not isinstance(family, LogUniformSpectrum):
        raise ValueError(f"{name}: has no closed form on a log-uniform spectrum; take a model that has one")
    g = family.scale**2 * torch.logspace(0, -2, POINTS, base=family.kappa, dtype=torch.float64)
    fits = damped_fits(form, g)
    worst = max(range(len(fits)), key=lambda layer: fits[layer].residual)
    roots = [int((form.evaluate(g, layer)[0].sign().diff() != 0).sum()) for layer in range(form.depth)]
    lams = ", ".join(f"{fit.lam:.2g}" for fit in fits[1:])
    note = (
        f"Layer {worst} of {len(fits)}; least squares on {POINTS} log-spaced g from {float(g[-1]):.2g} to "
        f"{float(g[0]):g}, any λ > −g_min. As a picture it is good: λ falls from layer to layer (∞, {lams}), so that "
        "each step is nearer to Newton's. It is not exact: p_l has "
        f"{', '.join(map(str, roots))} roots on the spectrum, where γ_l p_l² is 0 and 1/(g + λ) is not, and where "
        "λ < 0 nothing is damped."
    )
    return Findings(
        {"damped-hessian": Measurement.exact(fits[worst].residual, note)},
        fit_table(f"{name}: γ_l p_l(g)² ≈ η_l/(g + λ_l)", {"least squares": fits}),
        {"damped-hessian": [asdict(fit) for fit in fits]},
    )


def damped_fits(form: ClosedForm, g: Float[Tensor, " value"]) -> list[Fit]:
    """Layer by layer."""
    return [_damped_fit(g, form.inverse_hessian(g, layer)) for layer in range(form.depth)]


def _damped_fit(g: Float[Tensor, " value"], step: Float[Tensor, " value"]) -> Fit:
    """λ over −.99 g_min … −g_min/FAR and g_min/FAR … FAR g_max, η by least squares."""
    down = -torch.logspace(0, -6, DAMPINGS, dtype=torch.float64) * 0.99 * g.min()
    up = torch.logspace(0, 1, 4 * DAMPINGS, base=float(FAR**2 * g.max() / g.min()), dtype=torch.float64) * g.min() / FAR
    lams = torch.cat([down, up])
    shapes = 1 / (g + lams[:, None])
    return best_fit(lams, shapes, step)


def best_fit(
    lams: Float[Tensor, " damping"], shapes: Float[Tensor, "damping value"], step: Float[Tensor, " value"]
) -> Fit:
    """The λ whose shape, times its best η, is nearest to the step."""
    etas = (shapes @ step) / shapes.square().sum(1)
    residuals = (etas[:, None] * shapes - step).norm(dim=1) / step.norm()
    best = int(residuals.argmin())
    return Fit(float(etas[best]), float(lams[best]), float(residuals[best]))


def fit_table(title: str, readings: dict[str, list[Fit]]) -> str:
    """Layer by layer, one column a reading."""
    lines = [title, f"{'layer':<7}" + "".join(f"{reading:>38}" for reading in readings)]
    for layer, fits in enumerate(zip(*readings.values(), strict=True)):
        cells = [f"η {fit.eta:.3g}, λ {fit.lam:.3g}, residual {fit.residual:.2g}" for fit in fits]
        lines.append(f"{layer:<7}" + "".join(f"{cell:>38}" for cell in cells))
    return "\n".join(lines)
