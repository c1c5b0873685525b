"""A family fitted to a rule, and whether the rule lies in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from interp.identification.evidence import Evidence, Key
from interp.layout import BlockLayout
from interp.stats import central_rms, pooled_errors
from interp.unrolling import UpdateRule
from interp.unrolling.circuits import Group

ERROR_FLOOR, ERROR_A_RESIDUAL, ERROR_CEILING = 0.05, 15.0, 0.3  # of a member's predictions, relative
STRUCTURE = 0.1  # relative residual of a layer's tensors above which words, or matrices, do not describe it


@dataclass(frozen=True)
class Fit:
    """The member of a family that is nearest to a rule.

    Args:
        family: its name.
        settings: step sizes and the like.
        free: how many numbers were free; of two families that hold a rule the one with fewer is the smaller.
        predict: the member's prediction for tokens [batch, token, d_model].
        distances: by layer, of the member's update from the model's, relative, the residual of the words not counted.
        excess: the largest ratio of a distance to its tolerance.
        error_bound: relative error of the member's predictions above which the family does not hold the rule: a floor,
            more where weights are noisy, at most `ERROR_CEILING`.
        columns: what the family needs the prompts to hold in some blocks: 1, 0, or a copy of the first y.
        problem: why the rule is not in the family, with the offending layer; None if it is.
    """

    family: str
    settings: Mapping[str, Any]
    free: int
    predict: Callable[[Tensor], Tensor]
    distances: tuple[float, ...]
    excess: float
    error_bound: float
    problem: str | None
    columns: Mapping[str, Literal["one", "zero", "copy of y"]] = field(default_factory=dict)

    def on_prompts(self, layout: BlockLayout, tokens: Tensor) -> "Fit":
        """With a problem if the prompts hold something else in those columns."""
        u, y = layout.coordinates(tokens), layout.slices[layout.readout]
        for name, meaning in self.columns.items():
            found = u[..., layout.slices[name]]
            wanted = {"one": torch.ones_like(found), "zero": torch.zeros_like(found)}.get(meaning, u[..., y])
            if self.problem is None and not torch.allclose(found, wanted.expand_as(found), atol=1e-6):
                return replace(self, problem=f"these prompts do not hold {meaning} in the column block {name}")
        return self

    def relative_error(self, tokens: Tensor, exact: Tensor) -> float:
        """Of the member's predictions, rms over the central 99 % of prompts."""
        return central_rms(pooled_errors(self.predict(tokens), exact))


def fit_of_words(
    family: str,
    settings: Mapping[str, Any],
    free: int,
    rule: UpdateRule,
    evidence: Sequence[Evidence],
    coefficients: Sequence[Mapping[Key, float]],
    problem: str | None = None,
) -> Fit:
    """A fit whose members are words with these coefficients, by layer."""
    distances = tuple(layer.distance(fitted) for layer, fitted in zip(evidence, coefficients, strict=True))
    member = _with_words(rule, coefficients)
    excess = max(distance / layer.tolerance for layer, distance in zip(evidence, distances, strict=True))
    problem = problem or too_far(evidence, distances)
    bound = error_bound(max(layer.residual for layer in evidence))

    def predict(tokens: Tensor) -> Tensor:
        return member.predict(tokens, "words")

    return Fit(family, settings, free, predict, distances, excess, bound, problem)


def error_bound(residual: float) -> float:
    """The error of predictions that noise with this relative residual of the weights may cause."""
    return min(ERROR_CEILING, ERROR_FLOOR + ERROR_A_RESIDUAL * residual)


def too_far(evidence: Sequence[Evidence], distances: Sequence[float]) -> str | None:
    """Which layer is not described by words, or not by the family's; the worst one."""
    worst = max(range(len(evidence)), key=lambda layer: evidence[layer].residual)
    if evidence[worst].residual > STRUCTURE:
        return f"layer {worst}: the words leave out {evidence[worst].residual:.2g} of its tensor"
    excess = [distance / layer.tolerance for layer, distance in zip(evidence, distances, strict=True)]
    worst = max(range(len(excess)), key=excess.__getitem__)
    if excess[worst] > 1:
        return f"layer {worst}: at distance {distances[worst]:.2g} (tolerance {evidence[worst].tolerance:.2g})"
    return None


def _with_words(rule: UpdateRule, coefficients: Sequence[Mapping[Key, float]]) -> UpdateRule:
    """The rule with these words and no others."""
    layers = []
    for layer, chosen in zip(rule.layers, coefficients, strict=True):
        groups = [
            replace(item, words={word: value for (number, word), value in chosen.items() if number == index})
            for index, item in enumerate(layer.groups)
        ]
        layers.append(replace(layer, groups=tuple(groups)))
    return replace(rule, layers=tuple(layers))


def fit_of_matrices(
    family: str,
    settings: Mapping[str, Any],
    free: int,
    rule: UpdateRule,
    groups: Sequence[Group],
    distances: tuple[float, ...],
    problem: str | None,
) -> Fit:
    """A fit whose members are one group of heads a layer."""
    worst = max(range(len(distances)), key=distances.__getitem__)
    if problem is None and distances[worst] > STRUCTURE:
        problem = f"layer {worst}: at distance {distances[worst]:.2g} (tolerance {STRUCTURE:g})"
    layers = tuple(
        replace(layer, groups=(replace(layer.groups[0], group=group),))
        for layer, group in zip(rule.layers, groups, strict=True)
    )
    member, excess = replace(rule, layers=layers), distances[worst] / STRUCTURE

    def predict(tokens: Tensor) -> Tensor:
        return member.predict(tokens, "exact")

    return Fit(family, settings, free, predict, distances, excess, error_bound(max(distances)), problem)
