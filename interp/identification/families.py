"""The families of two words, z_x S_xx → x (η) and z_x S_xy → y (−γ), and the one whose steps are matrices."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from interp.identification.evidence import NOISE_FACTOR, TOLERANCE, Evidence, Key
from interp.identification.fit import Fit, fit_of_matrices, fit_of_words
from interp.identification.steps import (
    Steps,
    chebyshev_nodes,
    descent,
    eagle,
    gd_plus_plus,
    scheduled_descent,
    scheduled_eagle,
)
from interp.unrolling import UpdateRule
from interp.unrolling.circuits import Group
from interp.unrolling.spectral import see_one_context, two_words
from interp.unrolling.words import weight_fit

Fitter = Callable[[UpdateRule, Sequence[Evidence], int | None], Fit | None]
"""Called with the rule, its evidence and the number of context rows, if known; None where the family is not defined."""

TWO_WORDS: dict[str, Callable[[Sequence[float], Sequence[float]], Steps | None]] = {
    "gradient descent": descent,
    "Chebyshev nodes": chebyshev_nodes,
    "scheduled GD": scheduled_descent,
    "GD++": gd_plus_plus,
    "EAGLE": eagle,
    "scheduled EAGLE": scheduled_eagle,
}


def two_word_family(name: str) -> Fitter:
    """The fitter of a family of two words, for stacks in which all rows see the same context."""

    def fit(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
        if not see_one_context(rule):
            return None
        xx, xy = ((0, word) for word in two_words(rule))
        eta = [layer.coefficients.get(xx, 0.0) for layer in evidence[:-1]]
        gamma = [-layer.coefficients.get(xy, 0.0) for layer in evidence]
        steps = TWO_WORDS[name](eta, gamma)
        if steps is None:
            return None
        chosen = [
            {xy: -steps.gamma[layer], **({xx: steps.eta[layer]} if layer < len(eta) else {})}
            for layer in range(len(gamma))
        ]
        fitted = [{key: value for key, value in words.items() if value != 0.0} for words in chosen]
        problem = _wrong_sign(rule, steps, conditioned="EAGLE" in name or name == "GD++")
        return fit_of_words(name, steps.settings, steps.free, rule, evidence, fitted, problem)

    return fit


def _wrong_sign(rule: UpdateRule, steps: Steps, conditioned: bool) -> str | None:
    """The first layer whose step has the wrong sign, and what is wrong with the read-out's."""
    if rule.layout.sign > 0:
        return "the read-out does not negate, so these steps ascend"
    for layer, gamma in enumerate(steps.gamma):
        if gamma <= 0:
            return f"layer {layer}: γ = {gamma:.3g} is not positive"
    for layer, eta in enumerate(steps.eta):
        if conditioned and eta >= 0:
            return f"layer {layer}: η = {eta:.3g} is not negative"
    return None


def preconditioned_descent(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
    """z_y ← z_y − z_x P_l S_xy with a positive definite matrix P_l in every layer (Ahn et al., arXiv 2306.00297)."""
    if not see_one_context(rule):
        return None
    x, y = (rule.layout.slices[word.into] for word in two_words(rule))
    matrices = [-_matrix_step(layer.groups[0].group, x, y) for layer in rule.layers]
    groups = [_matrix_group(layer.groups[0].group, P, x, y) for layer, P in zip(rule.layers, matrices, strict=True)]
    distances = tuple(_distance(rule, index, group) for index, group in enumerate(groups))
    problem = "the read-out does not negate, so these steps ascend" if rule.layout.sign > 0 else None
    for layer, P in enumerate(matrices):
        problem = problem or _matrix_problem(rule, layer, P, distances[layer], evidence[layer])
    settings = {"preconditioners": [((P + P.T) / 2).tolist() for P in matrices]}
    width = matrices[0].shape[0]
    free = len(matrices) * width * (width + 1) // 2
    return fit_of_matrices("preconditioned GD", settings, free, rule, groups, distances, problem)


def _matrix_problem(rule: UpdateRule, layer: int, P: torch.Tensor, distance: float, evidence: Evidence) -> str | None:
    """Why P is no preconditioner, or what the layer does beside it."""
    if not P.norm():
        return f"layer {layer}: it does nothing"
    asymmetry = ((P - P.T).norm() / P.norm()).item()
    noise = max(0.0, distance**2 - (asymmetry / 2) ** 2) ** 0.5
    if asymmetry > 2 * (TOLERANCE + noise):
        return f"layer {layer}: its matrix is not symmetric ({asymmetry:.2g})"
    if torch.linalg.eigvalsh((P + P.T) / 2)[0] <= 0:
        return f"layer {layer}: its matrix is not positive definite"
    step: Key = (0, two_words(rule)[1])
    alone: dict[Key, float] = {step: evidence.coefficients.get(step, 0.0)}
    beside, noise = evidence.distance(alone), max(0.0, distance**2 - evidence.weight_distance(alone) ** 2) ** 0.5
    if beside > TOLERANCE + NOISE_FACTOR * noise / rule.layout.d_model * evidence.amplification:
        return f"layer {layer}: other words beside the matrix, of size {beside:.2g}"
    return None


def _matrix_step(group: Group, x: slice, y: slice) -> torch.Tensor:
    """P with z_x P S_xy → y nearest to the symmetrised tensor: both orders of Q and V, averaged over y."""
    width = y.stop - y.start
    direct = torch.einsum("hab,hcc->ab", group.Q[:, x, x], group.V[:, y, y])
    swapped = torch.einsum("haj,hbj->ab", group.Q[:, x, y], group.V[:, x, y])
    return (direct + swapped) / width


def _matrix_group(group: Group, P: torch.Tensor, x: slice, y: slice) -> Group:
    size = group.Q.shape[-1]
    Q, V = group.Q.new_zeros(1, size, size), group.V.new_zeros(1, size, size)
    Q[0, x, x] = (P + P.T) / 2
    V[0, y, y] = -torch.eye(y.stop - y.start, dtype=V.dtype)
    return replace(group, Q=Q, V=V, own=None)


def _distance(rule: UpdateRule, index: int, group: Group) -> float:
    """Relative distance of a group from the model's, over the live columns."""
    item = rule.layers[index].groups[0]
    live = [name for name in rule.layout.columns if name not in item.unread]
    gap = replace(group, Q=torch.cat([item.group.Q, group.Q]), V=torch.cat([item.group.V, -group.V]))
    empty = torch.zeros(0, dtype=torch.float64)
    return weight_fit(gap, [], empty, rule.layout, live).norm / item.fit.norm if item.fit.norm else 0.0
