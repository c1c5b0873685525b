"""Local minima of sup or rms |r_L(g)| over the numbers of a schedule: many starts at once, then one by one."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linprog
from torch import Tensor

FIRST, EACH = 150, 25
POWERS = (4, 8, 16, 32, 64, 128)
Parameters = Float[Tensor, "start number"]  # η_0 … η_{L−2}, γ_0 … γ_{L−1}, in the units of the problem


def residual(parameters: Parameters, g: Float[Tensor, "point"]) -> Float[Tensor, "start point"]:
    """r_L(g)."""
    return _recursion(parameters, g, False)[0]


def norms(parameters: Parameters, g: Float[Tensor, "point"]) -> Float[Tensor, "start layer"]:
    """‖A_l‖ = sup √g |p_l(g)| by layer."""
    depth = (parameters.shape[1] + 1) // 2
    p, seen = torch.ones_like(g).expand(len(parameters), -1), []
    for layer in range(depth):
        seen.append((g.sqrt() * p).abs().amax(1))
        if layer < depth - 1:
            p = p * (1 + parameters[:, layer, None] * g * p**2)
    return torch.stack(seen, dim=1)


def in_own_units(unit_free: Parameters, g: Float[Tensor, "point"]) -> Parameters:
    """Coefficients in units of 1/‖A_l‖² as plain numbers, layer by layer."""
    depth, own = (unit_free.shape[1] + 1) // 2, unit_free.clone()
    for layer in range(depth):
        square = norms(own[:, [*range(layer), *range(depth - 1, depth + layer)]], g)[:, layer] ** 2
        for column in {layer, depth - 1 + layer} if layer < depth - 1 else {depth - 1 + layer}:
            own[:, column] = unit_free[:, column] / square
    return own


def _recursion(parameters: Parameters, g: Tensor, slope: bool) -> tuple[Tensor, Tensor]:
    """r [start, point] and dr [start, number, point]."""
    starts, numbers = parameters.shape
    depth = (numbers + 1) // 2
    p = r = g.new_ones(starts, len(g))
    dp = dr = g.new_zeros(starts, numbers if slope else 0, len(g))
    for layer in range(depth):
        gamma, q = parameters[:, depth - 1 + layer, None], g * p**2
        dq = (2 * g * p)[:, None] * dp
        dr = dr * (1 - gamma * q)[:, None] - (r * gamma)[:, None] * dq
        if slope:
            dr[:, depth - 1 + layer] -= r * q
        r = r * (1 - gamma * q)
        if layer < depth - 1:
            eta = parameters[:, layer, None]
            dp = dp * (1 + eta * q)[:, None] + (p * eta)[:, None] * dq
            if slope:
                dp[:, layer] += p * q
            p = p * (1 + eta * q)
    return r, dr


@dataclass(frozen=True)
class Goal:
    """log of (Σ weight |r|^power)^(1/power) on a grid."""

    g: Float[Tensor, "point"]
    weight: Float[Tensor, "point"]
    power: int = 2

    def value(self, r: Float[Tensor, "start point"]) -> Float[Tensor, "start"]:
        size = r.abs().amax(1, keepdim=True).clamp(min=1e-300)
        mean = ((r / size).abs() ** self.power * self.weight).sum(1)
        return torch.nan_to_num(size[:, 0].log() + mean.log() / self.power, nan=torch.inf)


def descend(parameters: Parameters, goal: Goal, steps: int) -> Parameters:
    """Levenberg–Marquardt on ρ = √weight |r|^(power/2), every start with its own damping."""
    damping = torch.full((len(parameters),), 1e-2).to(parameters)
    r, dr = _recursion(parameters, goal.g, True)
    value = goal.value(r)
    for _ in range(steps):
        trial = parameters + _step(r, dr, goal, damping)
        reached = goal.value(residual(trial, goal.g))
        better = reached < value
        damping = torch.where(better, damping / 3, damping * 4).clamp(1e-12, 1e12)
        if better.any():
            parameters = torch.where(better[:, None], trial, parameters)
            value = torch.where(better, reached, value)
            r, dr = _recursion(parameters, goal.g, True)
    return parameters


def _step(r: Tensor, dr: Tensor, goal: Goal, damping: Tensor) -> Parameters:
    half = goal.power / 2
    size = r.abs().amax(1, keepdim=True).clamp(min=1e-300)
    share = (r / size).abs().clamp(min=1e-30)
    rho = goal.weight.sqrt() * share**half * r.sign()
    J = (goal.weight.sqrt() * half * share ** (half - 1) / size)[:, None] * dr
    scale = J.square().sum(2).sqrt().clamp(min=1e-150)
    J = J / scale[:, :, None]
    H = J @ J.mT + (damping[:, None, None] + 1e-14) * torch.eye(J.shape[1]).to(J)
    step = -torch.linalg.solve_ex(H, (J @ rho[:, :, None]))[0][:, :, 0] / scale
    return torch.nan_to_num(step, nan=0.0, posinf=0.0, neginf=0.0)


def search(starts: Parameters, goal: Goal, largest: bool) -> Parameters:
    """A minimum near every start: of the rms, or of ever higher powers on the way to the maximum."""
    found = descend(starts, goal, FIRST)
    for power in POWERS if largest else ():
        found = descend(found, Goal(goal.g, goal.weight, power), EACH)
    return found


def equalise(parameters: Float[Tensor, "number"], g: Float[Tensor, "point"], steps: int = 60) -> Tensor:
    """A minimum of max |r| on a fine grid: linear programmes in a trust region until no step helps."""
    best, radius = parameters.clone(), 0.1
    r, dr = (values[0] for values in _recursion(best[None], g, True))
    scale = best.abs().clamp(min=1e-3 * float(best.abs().max()))
    for _ in range(steps):
        level = float(r.abs().max())
        delta, promised = _programme(r, dr, scale, radius)
        if promised >= level * (1 - 1e-9) or radius < 1e-10:
            break
        after, slopes = (values[0] for values in _recursion((best + delta)[None], g, True))
        gain = (level - float(after.abs().max())) / (level - promised)
        radius = min(0.5, 2 * radius) if gain > 0.75 else radius if gain > 0.25 else radius / 4
        if gain > 0:
            best, r, dr = best + delta, after, slopes
    return best


def _programme(r: Tensor, dr: Tensor, scale: Tensor, radius: float) -> tuple[Tensor, float]:
    """min t with |r + drᵀδ| ≤ t at the points near the top, |δ| ≤ radius · scale."""
    level = float(r.abs().max())
    padded = torch.nn.functional.pad(r.abs(), (1, 1))
    peaks = (padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:])
    near = torch.nn.functional.max_pool1d((peaks & (r.abs() > 0.3 * level)).double()[None], 9, 1, 4)[0] > 0
    rows, values = (dr[:, near].mT * scale / level).numpy(), (r[near] / level).numpy()
    ones = np.ones((len(values), 1))
    solved = linprog(
        [0.0] * rows.shape[1] + [1.0],
        A_ub=np.block([[rows, -ones], [-rows, -ones]]),
        b_ub=np.concatenate([-values, values]),
        bounds=[(-radius, radius)] * rows.shape[1] + [(0, None)],
    )
    if solved.x is None:
        return torch.zeros_like(scale), level
    return torch.tensor(solved.x[:-1]) * scale, float(solved.x[-1]) * level
