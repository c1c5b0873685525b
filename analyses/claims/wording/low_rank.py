"""Their picture of a rank-limited head: a Newton step in its r directions; and what the step is instead."""

from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.wording.hessians import DAMPINGS, Fit, best_fit, fit_table
from interp.unrolling import UpdateRule, unroll
from interp.unrolling.spectral import xy_slices
from models import zoo
from models.prompts import Prompts

RANGE, MOVED, RELATIVE = "U of Q", "B_l U", "U of Q, λ per mean"
"""Readings: U is what Q reads, or its image in the query rows; λ absolute, or in units of each prompt's mean
eigenvalue of UᵀGU."""


@dataclass(frozen=True, eq=False)
class Steps:
    """A rule as steps of w, from the exact update of the d unit queries.

    Args:
        weights: w_l by depth, −∂D_l/∂B for a read-out that negates.
        queries: B_l by depth, of the unit queries.
        gains: Σ_h Q_h V_h,yy by layer, V_h,yy by its mean diagonal: γ Q with its sign.
        sign: of the read-out.
    """

    weights: list[Float[Tensor, "prompt d out"]]
    queries: list[Float[Tensor, "prompt d d"]]
    gains: list[Float[Tensor, "d d"]]
    sign: float


def measure(name: str, count: int, settings: Settings) -> Findings:
    """The steps of a rank-limited model of the zoo in w against Newton steps in r directions."""
    prompts = zoo.prompts(name, count, settings.seed)
    steps = steps_of(unroll(zoo.load(name)), prompts)
    readings, instead = newton_fits(steps, prompts), conditioned_residuals(steps, prompts)
    layers = [min(fits, key=lambda fit: fit.residual) for fits in zip(*readings.values(), strict=True)]
    worst = max(range(len(layers)), key=lambda layer: layers[layer].residual)
    note = (
        f"Layer {worst} of {len(layers)}, {count} prompts, seed {settings.seed}; steps of w on the row space of A, "
        "each prompt's of unit size. U is the r directions that Q reads, or their images B_l U in the query rows, with "
        "η and λ ≥ 0 common to all prompts, or λ in units of each prompt's mean eigenvalue of UᵀGU: the best of these "
        "in every layer. It is a gradient step, −γ B_l Q B_lᵀ∇(w), in r directions that the layers before have "
        f"conditioned (residuals up to {max(instead):.1g}): no layer inverts UᵀGU."
    )
    table = fit_table(f"{name}: Δw ≈ −η U (UᵀGU + λI)⁻¹ Uᵀ∇(w)", readings)
    cells = ", ".join(f"{value:.2g}" for value in instead)
    return Findings(
        {"low-rank-newton": Measurement.exact(layers[worst].residual, note)},
        f"{table}\nΔw ≈ −γ B_l Q B_lᵀ∇(w), nothing fitted, residual by layer: {cells}",
        {
            "low-rank-newton": {reading: [asdict(fit) for fit in fits] for reading, fits in readings.items()},
            "low-rank-gradient": instead,
        },
    )


def steps_of(rule: UpdateRule, prompts: Prompts) -> Steps:
    """The rule on the prompts' context rows with the d unit vectors as queries."""
    x, y = xy_slices(rule.layout)
    d = prompts.A.shape[2]
    layout = replace(rule.layout, n_query=d)
    context = prompts.tokens[:, : -prompts.n_query].double()
    units = torch.eye(d).to(context) @ layout.basis[:, x].T.to(context)
    tokens = torch.cat([context, units.expand(len(context), -1, -1)], 1)
    states = list(replace(rule, layout=layout).states(tokens, "exact"))
    heads = [
        [(Q, V) for item in layer.groups for Q, V in zip(item.group.Q, item.group.V, strict=True)]
        for layer in rule.layers
    ]
    gains = [torch.stack([Q[x, x] * V[y, y].diagonal().mean() for Q, V in layer]).sum(0) for layer in heads]
    weights = [layout.sign * z[:, -d:, y] for z in states]
    return Steps(weights, [z[:, -d:, x] for z in states], gains, layout.sign)


def newton_fits(steps: Steps, prompts: Prompts) -> dict[str, list[Fit]]:
    """By reading of U and λ, layer by layer."""
    A = prompts.A.double()
    G, rows = A.mT @ A, _row_space(A)
    readings: dict[str, list[Fit]] = {RANGE: [], MOVED: [], RELATIVE: []}
    for layer, gain in enumerate(steps.gains):
        step, gradient = rows @ (steps.weights[layer + 1] - steps.weights[layer]), _gradient(steps, prompts, layer)
        U = _directions(gain)
        frames = {RANGE: U.expand(len(G), -1, -1), MOVED: torch.linalg.qr(steps.queries[layer] @ U)[0]}
        for reading in readings:
            frame = frames.get(reading, frames[RANGE])
            readings[reading].append(newton_fit(frame, G, gradient, step, rows, reading == RELATIVE))
    return readings


def conditioned_residuals(steps: Steps, prompts: Prompts) -> list[float]:
    """‖Δw − fit‖/‖Δw‖ of the fit −γ B_l Q B_lᵀ∇(w), rms over prompts, layer by layer.

    Exact where z_x S_xx → x and z_x S_xy → y are all that heads do: context rows and unit queries take the same steps,
    so A_l = A B_l and C_l = C − A w_l, and D steps by B_l γQ A_lᵀC_l.
    """
    rows, residuals = _row_space(prompts.A.double()), []
    for layer, gain in enumerate(steps.gains):
        step, B = rows @ (steps.weights[layer + 1] - steps.weights[layer]), steps.queries[layer]
        fit = -steps.sign * rows @ B @ gain @ B.mT @ _gradient(steps, prompts, layer)
        ratio = (step - fit).flatten(1).norm(dim=1) / step.flatten(1).norm(dim=1)
        residuals.append(float(ratio.square().mean().sqrt()))
    return residuals


def _gradient(steps: Steps, prompts: Prompts, depth: int) -> Float[Tensor, "prompt d out"]:
    A = prompts.A.double()
    return A.mT @ (A @ steps.weights[depth] - prompts.C.double())


def _row_space(A: Float[Tensor, "prompt n d"]) -> Float[Tensor, "prompt d d"]:
    return torch.linalg.pinv(A) @ A


def _directions(gain: Float[Tensor, "d d"]) -> Float[Tensor, "d r"]:
    """The left singular vectors whose singular values are not rounding."""
    vectors, values, _ = torch.linalg.svd(gain)
    return vectors[:, values > 1e-3 * values[0]]


def newton_fit(
    U: Float[Tensor, "prompt d r"],
    G: Float[Tensor, "prompt d d"],
    gradient: Float[Tensor, "prompt d out"],
    step: Float[Tensor, "prompt d out"],
    rows: Float[Tensor, "prompt d d"],
    relative: bool,
) -> Fit:
    """η and λ of −η U (UᵀGU + λI)⁻¹ Uᵀ∇ on `rows`, each prompt's step and fit divided by ‖step‖."""
    size = step.flatten(1).norm(dim=1)[:, None, None]
    values, vectors = torch.linalg.eigh(U.mT @ G @ U)
    turned, values = rows @ U @ vectors, values.clamp(min=0)
    seen = (U @ vectors).mT @ gradient
    unit = values.mean(1, keepdim=True) if relative else values.mean().expand(len(values), 1)
    lams = torch.logspace(-6, 6, DAMPINGS, dtype=torch.float64)
    shapes = torch.stack([-(turned @ (seen / (values + lam * unit)[..., None]) / size).flatten() for lam in lams])
    fit = best_fit(lams, shapes, (step / size).flatten())
    return fit if relative else replace(fit, lam=fit.lam * float(values.mean()))
