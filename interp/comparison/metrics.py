"""Distances of layers to steps, and three ways to assign steps to layers (MATH §7).

With P_l [prompt, query, out] the prediction at depth l, S_k a solver's after k steps, R that of kernel ridge
regression, and rms(·) over prompts, queries and outputs:

    d_lk = rms(P_l − S_k) / rms(R)                        relative distance
    c_lk = ⟨P_l − R, S_k − R⟩ / ‖P_l − R‖ ‖S_k − R‖        cosine of the errors, 0 where one of them has vanished

    A      min over maps m, m(1) ≤ m(2) ≤ …, of the mean over layers of d_{l, m(l)}
    A-lin  min over c ≥ 1 and o = 0, 1 of the mean over layers of d_{l, c (l − o)}: a fixed number c of steps a layer,
           after a first block that may do nothing but read in (o = 1)
    C      max over maps as in A of the mean over layers of c_{l, m(l)}; as a distance 1 − C

All three as distances: smaller is nearer. Nothing changes when y is scaled.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

A, A_LIN, C = "A", "A-lin", "C"
METRICS = (A, A_LIN, C)
VANISHED = 1e-9  # an error, as a share of the reference, that has no direction


def distances(
    layers: Float[Tensor, "layer entry"], steps: Float[Tensor, "step entry"], reference: Float[Tensor, "entry"]
) -> Float[Tensor, "layer step"]:
    """d_lk, relative to the size of the reference."""
    return torch.cdist(layers[None], steps[None], compute_mode="donot_use_mm_for_euclid_dist")[0] / reference.norm()


def error_distances(
    layers: Float[Tensor, "layer entry"], steps: Float[Tensor, "step entry"], reference: Float[Tensor, "entry"]
) -> Float[Tensor, "layer step"]:
    """1 − c_lk."""
    floor = VANISHED * reference.norm()
    units = []
    for values in (layers, steps):
        errors = values - reference
        size = errors.norm(dim=1, keepdim=True)
        units.append(torch.where(size > floor, errors / size, 0.0))
    return 1 - units[0] @ units[1].T


@dataclass(frozen=True)
class Assigned:
    """A step for each layer, and the mean of the costs there."""

    cost: float
    steps: tuple[int, ...]

    @property
    def pace(self) -> int:
        """Steps from the last layer but one to the last."""
        return self.steps[-1] - (self.steps[-2] if len(self.steps) > 1 else 0)


def monotone(cost: Float[Tensor, "layer step"]) -> Assigned:
    """The cheapest map that never goes back: dynamic programming in O(layers × steps)."""
    reached, came_from = cost[0], []
    for row in cost[1:]:
        cheapest, origin = reached.cummin(0)
        came_from.append(origin)
        reached = cheapest + row
    step = int(reached.argmin())
    steps, total = [step], reached[step].item()
    for origin in reversed(came_from):
        step = int(origin[step])
        steps.append(step)
    return Assigned(total / len(cost), tuple(reversed(steps)))


def fixed_pace(cost: Float[Tensor, "layer step"]) -> Assigned:
    """The cheapest whole number c of steps a layer: depth l (from 1) at step c l, or c (l − 1).

    Raises:
        ValueError: fewer steps than layers.
    """
    layers, most = len(cost), cost.shape[1] - 1
    if most < layers:
        raise ValueError(f"compare: {most} steps are fewer than {layers} layers; give steps={layers} or more")
    found = []
    for first in (0, 1):
        acting = torch.arange(1 - first, layers + 1 - first, device=cost.device)
        for pace in range(1, most // max(layers - first, 1) + 1):
            steps = pace * acting
            found.append(Assigned(cost.gather(1, steps[:, None]).mean().item(), tuple(steps.tolist())))
    return min(found, key=lambda each: each.cost)


def assign(metric: str, distance: Tensor, error: Tensor) -> Assigned:
    """One of `METRICS` on the two tables of a solver."""
    if metric == A_LIN:
        return fixed_pace(distance)
    return monotone(error if metric == C else distance)


def standing_still(metric: str, distance: Tensor, error: Tensor) -> float:
    """The metric of no iteration: every layer at step 0."""
    return (error if metric == C else distance)[:, 0].mean().item()
