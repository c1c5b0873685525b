"""Their pictures of the Hessian estimate: H = G + λI, and a Newton step in the r directions of a rank-limited head."""

from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from interp.unrolling import ClosedForm, UpdateRule, closed_form, unroll
from interp.unrolling.spectral import xy_slices
from models import zoo
from models.prompts import LogUniformSpectrum, Prompts

POINTS = 400
DAMPINGS = 121  # values of λ that are tried, log-spaced
RELATIVE = "U of Q, λ per mean"
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
        _table(f"{name}: γ_l p_l(g)² ≈ η_l/(g + λ_l)", {"least squares": fits}),
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
    return _best(lams, (shapes @ step) / shapes.square().sum(1), shapes, step)


def _best(lams: Tensor, etas: Tensor, shapes: Tensor, step: Tensor) -> Fit:
    residuals = (etas[:, None] * shapes - step).norm(dim=1) / step.norm()
    best = int(residuals.argmin())
    return Fit(float(etas[best]), float(lams[best]), float(residuals[best]))


def low_rank(name: str, count: int, settings: Settings) -> Findings:
    """The steps of a rank-limited model of the zoo in w against Newton steps in r directions."""
    prompts = zoo.prompts(name, count, settings.seed)
    readings = low_rank_fits(unroll(zoo.load(name)), prompts)
    layers = [min(fits, key=lambda fit: fit.residual) for fits in zip(*readings.values(), strict=True)]
    worst = max(range(len(layers)), key=lambda layer: layers[layer].residual)
    note = (
        f"Layer {worst} of {len(layers)}, {count} prompts, seed {settings.seed}; steps of w on the row space of A, "
        "each prompt's of unit size. U is the r directions that Q reads, or their images B_l U in the query rows, with "
        "η and λ ≥ 0 common to all prompts, or λ in units of each prompt's mean eigenvalue of UᵀGU: the best of these "
        "in every layer, each layer with its own η and λ."
    )
    return Findings(
        {"low-rank-newton": Measurement.exact(layers[worst].residual, note)},
        _table(f"{name}: Δw ≈ −η U (UᵀGU + λI)⁻¹ Uᵀ∇(w)", readings),
        {"low-rank-newton": {reading: [asdict(fit) for fit in fits] for reading, fits in readings.items()}},
    )


def low_rank_fits(rule: UpdateRule, prompts: Prompts) -> dict[str, list[Fit]]:
    """By reading of U and λ, layer by layer: see `low_rank`."""
    weights, queries, own = implicit_steps(rule, prompts)
    A, C = prompts.A.double(), prompts.C.double()
    G = A.mT @ A
    rows = torch.linalg.pinv(A) @ A
    readings: dict[str, list[Fit]] = {"U of Q": [], "B_l U": [], RELATIVE: []}
    for layer in range(len(own)):
        step, gradient = rows @ (weights[layer + 1] - weights[layer]), G @ weights[layer] - A.mT @ C
        U = own[layer].expand(len(G), -1, -1)
        frames = {"U of Q": U, "B_l U": torch.linalg.qr(queries[layer] @ own[layer])[0], RELATIVE: U}
        for reading, frame in frames.items():
            readings[reading].append(_newton_fit(frame, G, gradient, step, rows, reading == RELATIVE))
    return readings


def implicit_steps(rule: UpdateRule, prompts: Prompts) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """w_l = −∂D_l/∂B by layer [prompt, d, out], the unit queries' B_l, and an orthonormal basis of what Q_l reads."""
    x, y = xy_slices(rule.layout)
    d = prompts.A.shape[2]
    layout = replace(rule.layout, n_query=d)
    context = prompts.tokens[:, : -prompts.n_query].double()
    units = torch.eye(d).to(context) @ layout.basis[:, x].T.to(context)
    tokens = torch.cat([context, units.expand(len(context), -1, -1)], 1)
    states = list(replace(rule, layout=layout).states(tokens, "exact"))
    weights = [layout.sign * z[:, -d:, y] for z in states]
    bases = [_directions(torch.cat([item.group.Q[:, x, x] for item in layer.groups])) for layer in rule.layers]
    return weights, [z[:, -d:, x] for z in states], bases


def _directions(Q: Float[Tensor, "head d d"]) -> Float[Tensor, "d r"]:
    """The left singular vectors of all heads side by side whose singular values are not rounding."""
    vectors, values, _ = torch.linalg.svd(torch.cat(list(Q), 1), full_matrices=False)
    return vectors[:, values > 1e-3 * values[0]]


def _newton_fit(U: Tensor, G: Tensor, gradient: Tensor, step: Tensor, rows: Tensor, relative: bool) -> Fit:
    """η and λ of −η U (UᵀGU + λI)⁻¹ Uᵀ∇, each prompt's step and fit divided by ‖step‖; λ absolute, or `relative` to
    the mean eigenvalue of each prompt."""
    size = step.flatten(1).norm(dim=1)[:, None, None]
    values, vectors = torch.linalg.eigh(U.mT @ G @ U)
    turned, values = rows @ U @ vectors, values.clamp(min=0)
    seen = (U @ vectors).mT @ gradient
    unit = values.mean(1, keepdim=True) if relative else torch.ones_like(values[:, :1])
    lams = torch.logspace(-6, 6, DAMPINGS, dtype=torch.float64) * (1.0 if relative else float(values.mean()))
    shapes = torch.stack([-(turned @ (seen / (values + lam * unit)[..., None]) / size).flatten() for lam in lams])
    target = (step / size).flatten()
    return _best(lams, (shapes @ target) / shapes.square().sum(1), shapes, target)


def _table(title: str, readings: dict[str, list[Fit]]) -> str:
    lines = [title, f"{'layer':<7}" + "".join(f"{reading:>34}" for reading in readings)]
    for layer, fits in enumerate(zip(*readings.values(), strict=True)):
        cells = [f"η {fit.eta:.3g}, λ {fit.lam:.3g}, residual {fit.residual:.2g}" for fit in fits]
        lines.append(f"{layer:<7}" + "".join(f"{cell:>34}" for cell in cells))
    return "\n".join(lines)
