"""The EAGLE form nearest to an extracted rule: what is left of each layer if it is exactly the published update.

A layer's head becomes Q = diag(c P, 0), V = diag(b₁P + b₂(I − P), −γ I): two numbers where Q_xx has full rank (P = I,
η = c b₁), four and a projection P of rank r where it is rank-limited. Every group of heads keeps its largest canonical
head and loses the others.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import central
from interp.unrolling import UpdateRule
from interp.unrolling.circuits import Group
from interp.unrolling.fit import explained
from interp.unrolling.head_projection import numerical_rank, two_levels
from interp.unrolling.moments import check_prompts
from interp.unrolling.rule import live_part
from interp.unrolling.sketch import nearest_projection
from interp.unrolling.spectral import xy_slices


@dataclass(frozen=True)
class HeadForm:
    """The numbers of one head: Q_xx ≈ P of rank `rank`, V_xx ≈ η P + outside (I − P), V_yy ≈ −γ I."""

    rank: int
    eta: float
    outside: float
    gamma: float


def eagle_form(rule: UpdateRule) -> tuple[UpdateRule, list[list[HeadForm]]]:
    """The rule whose exact level is the EAGLE form of `rule`, and its numbers by layer and group."""
    x, y = xy_slices(rule.layout)
    layers, numbers = [], []
    for layer in rule.layers:
        formed = [_form(item.group, x, y) for item in layer.groups]
        groups = (replace(item, group=group) for item, (group, _) in zip(layer.groups, formed, strict=True))
        layers.append(replace(layer, groups=tuple(groups)))
        numbers.append([head for _, head in formed])
    return replace(rule, layers=tuple(layers)), numbers


def block_form(rule: UpdateRule) -> UpdateRule:
    """The rule with Q = diag(Q_xx, 0), V = diag(V_xx, −γ I), the x blocks as they are, of each group's largest head."""
    x, y = xy_slices(rule.layout)

    def formed(group: Group) -> Group:
        Q, V = torch.zeros_like(group.Q[:1]), torch.zeros_like(group.V[:1])
        Q[0, x, x], V[0, x, x] = group.Q[0, x, x], group.V[0, x, x]
        V[0, y, y] = group.V[0, y, y].diagonal().mean() * torch.eye(V[0, y, y].shape[0]).to(V)
        return replace(group, Q=Q, V=V)

    layers = (
        replace(layer, groups=tuple(replace(item, group=formed(item.group)) for item in layer.groups))
        for layer in rule.layers
    )
    return replace(rule, layers=tuple(layers))


def _form(group: Group, x: slice, y: slice) -> tuple[Group, HeadForm]:
    Q, V = group.Q[0], group.V[0]
    near = nearest_projection(Q[x, x], numerical_rank(Q[x, x]))
    (inside, outside), _ = two_levels(V[x, x], near.P)
    gamma = -V[y, y].diagonal().mean().item()
    formed_Q, formed_V = torch.zeros_like(Q), torch.zeros_like(V)
    formed_Q[x, x] = near.c * near.P
    formed_V[x, x] = inside * near.P + outside * (torch.eye(len(near.P)).to(V) - near.P)
    formed_V[y, y] = -gamma * torch.eye(V[y, y].shape[0]).to(V)
    head = HeadForm(near.rank, near.c * inside, near.c * outside, near.c * gamma)
    return replace(group, Q=formed_Q[None], V=formed_V[None]), head


@dataclass(frozen=True)
class LayerFidelity:
    """The form against the rule on one layer, from the rule's own input, over what reaches the output.

    Args:
        explained: 1 − ‖ΔZ − Δ̂Z‖² / ‖ΔZ‖².
        fidelity: ‖ΔZ − Δ̂Z‖² of what reaches the output over the number of entries of Z, median over prompts.
        central_fidelity: the same, the mean over the central 99 % of prompts.
        norm: the largest ‖A_l‖₂ over prompts, where rows lie on machines of a machine's rows.
        median_norm: the median of the same, which prompts that blow up do not move.
    """

    explained: float
    fidelity: float
    central_fidelity: float
    norm: float
    median_norm: float


def layer_fidelity(rule: UpdateRule, form: UpdateRule, prompts: object) -> list[LayerFidelity]:
    """Layer by layer, how much of the exact rule its form keeps."""
    states = list(rule.states(check_prompts(prompts, rule.layout), "exact"))
    results = []
    for index, z in enumerate(states[:-1]):
        layer = rule.layers[index]
        truth = live_part(layer, rule.layout, rule.step(index, z, "exact"))
        guess = live_part(layer, rule.layout, form.step(index, z, "exact"))
        gaps = (guess - truth).flatten(1).square().sum(1) / z[0].numel()
        norms = _norms(rule, z)
        results.append(
            LayerFidelity(
                explained=explained(guess, truth),
                fidelity=gaps.median().item(),
                central_fidelity=central(gaps).mean().item(),
                norm=norms.max().item(),
                median_norm=norms.median().item(),
            )
        )
    return results


def _norms(rule: UpdateRule, z: Float[Tensor, "batch token D"]) -> Float[Tensor, "batch machine"]:
    x, _ = xy_slices(rule.layout)
    A = z[:, : -rule.layout.n_query, x].unflatten(1, (rule.layout.machines, -1))
    return torch.linalg.matrix_norm(A, ord=2)
