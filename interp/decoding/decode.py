"""`decode`: the implicit state of a model, from its forward pass and, where it has a rule, from its weights alone."""

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.decoding.derivatives import (
    apart,
    label_derivatives,
    nonlinearity,
    weights_by_jacobian,
    weights_by_queries,
)
from interp.decoding.exact import INPUT, contributions, rule_of, weight_derivatives_of_rule, weights_of_rule
from interp.decoding.forward import Forward, forward_of
from interp.decoding.hessian import InverseHessian, RowSpace, inverse_hessian
from interp.decoding.result import ClosedFormDistance, Decoding
from interp.layout import BlockLayout
from interp.stats import ErrorSummary, pooled_errors
from interp.unrolling import certify, closed_form
from interp.unrolling.rule import UpdateRule
from interp.unrolling.spectral import obstacle, see_one_context, two_words
from interp.unrolling.words import reproject

NO_SINGLE_G = (
    "not defined, since not all rows see the same context: there is no single G of which it could be s_l(G). "
    "w, ∂w/∂y and the contributions are"
)


def decode(
    model: Any,
    prompts: Any,
    layout: BlockLayout | None = None,
    *,
    query: int = 0,
    radius: float = 0.1,
    directions: int = 3,
    seed: int = 0,
) -> Decoding:
    """The implicit weights of a model at every depth, their sensitivity to the labels, and its inverse Hessian.

    Args:
        model: hooked, see `interp.hooks.Hooked`; any architecture. Exact for linear attention, local for others.
        prompts: tokens [batch, token, d_model], or a value with such `.tokens`.
        layout: the meaning of rows and columns; by default the model's own.
        query: the query row in which the read-out is differentiated.
        radius: of the neighbourhood in which linearity is measured, relative to the query's norm, at `directions`
            random points (`seed`).

    Raises:
        ValueError: no layout, no hooks, prompts or weights that are not finite, activations that overflow, labels or
            inputs that leave the least-squares weights undefined, no such query row.

    Source: MATH §5.
    """
    forward = forward_of(model, prompts, layout, query)
    target = _least_squares(forward)
    if not radius > 0 or directions < 1:
        raise ValueError(f"decode: radius={radius} must be positive and directions={directions} at least 1")
    rule, why_not = rule_of(forward.model, forward.layout)
    weights = _finite(weights_by_jacobian(forward))
    roads = [weights, weights_by_queries(forward)] + ([weights_of_rule(rule, forward)] if rule else [])
    sensitivity, mixed = label_derivatives(forward)
    by_rule = weight_derivatives_of_rule(rule, forward) if rule else None
    hessian = inverse_hessian(mixed, forward.A) if rule is None or see_one_context(rule) else None
    return Decoding(
        weights=weights,
        by_queries=roads[1],
        by_rule=roads[2] if rule else None,
        least_squares=target,
        w_relative_error=(weights - target).flatten(2).norm(dim=2) / target.flatten(1).norm(dim=1),
        agreement=torch.stack([apart(one, other) for one, other in combinations(roads, 2)]).amax(0),
        label_sensitivity=sensitivity,
        mixed=mixed,
        mixed_by_rule=by_rule,
        mixed_agreement=None if by_rule is None else apart(by_rule, mixed),
        hessian=hessian,
        contributions=contributions(rule, forward.u) if rule else _by_layer(forward),
        nonlinearity=nonlinearity(forward, weights, radius, directions, seed),
        radius=radius,
        closed_form=_closed_form(forward, rule, weights, hessian),
        undefined=_undefined(rule, why_not),
    )


def _least_squares(forward: Forward) -> Float[Tensor, "prompt d out"]:
    """A⁺C."""
    if not forward.A.flatten(1).any(dim=1).all():
        raise ValueError("decode: a prompt's inputs are all 0, so there is nothing to solve; leave it out")
    found = RowSpace.of(forward.A).inverse @ forward.C
    empty = (found.flatten(1).norm(dim=1) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"decode: the least-squares weights of prompt {empty[0]} are 0 (its labels are, or do not depend on its "
            "inputs), so errors relative to them are undefined; leave it out"
        )
    if not forward.b.any(dim=1).all():
        raise ValueError("decode: a prompt's query is 0, so it has no neighbourhood; leave it out")
    return found


def _finite(weights: Float[Tensor, "depth prompt d out"]) -> Tensor:
    broken = (~weights.flatten(2).isfinite().all(2)).nonzero().tolist()
    if broken:
        depth, prompt = broken[0]
        raise ValueError(
            f"decode: the activations of prompt {prompt} are NaN or infinite at depth {depth}; a model has a domain, "
            "leave such prompts out"
        )
    return weights


def _by_layer(forward: Forward) -> list[dict[str, Tensor]]:
    """What each layer adds to the read-out, and first what is read out of the input."""
    with torch.no_grad():
        read = forward.read_all(forward.u)
    first, *later = [{"layer": after - before} for before, after in pairwise(read)]
    return [{INPUT: read[0], **first}, *later]


def _closed_form(
    forward: Forward, rule: UpdateRule | None, weights: Tensor, hessian: InverseHessian | None
) -> ClosedFormDistance | None:
    form = closed_form(rule) if rule else None
    if form is None or rule is None or hessian is None:
        return None
    A, C, depths = forward.A, forward.C, range(form.depth + 1)
    expected = torch.stack([form.implicit_weights(A, C, depth) for depth in depths])
    scale = A.shape[1] if form.per_n else 1
    s = torch.stack([form.evaluate(hessian.g / scale, depth)[2] for depth in depths]) / scale
    sign = -form.sign  # the closed form is of the prediction −sign · B s AᵀC
    B = forward.u[:, forward.n :, forward.x]
    tokens = forward.u @ forward.layout.basis.T.to(forward.u)
    return ClosedFormDistance(
        weights=apart(weights, expected),
        spectrum=apart(hessian.spectrum.nan_to_num(), sign * s.nan_to_num()),
        output=ErrorSummary.of(pooled_errors(B @ expected[-1], B @ weights[-1])),
        core=certify(_of_two_words(rule), forward.model, tokens).levels["words"].output,
        words=certify(rule, forward.model, tokens).levels["words"].output,
    )


def _of_two_words(rule: UpdateRule) -> UpdateRule:
    """The rule with no other words than those of the closed form, with its coefficients."""
    keep, widths = set(two_words(rule)), rule.layout.widths
    groups = [
        [replace(item, words=reproject(item.projected, keep, widths)) for item in layer.groups] for layer in rule.layers
    ]
    layers = [replace(layer, groups=tuple(items)) for layer, items in zip(rule.layers, groups, strict=True)]
    return replace(rule, layers=tuple(layers))


def _undefined(rule: UpdateRule | None, why_not: str | None) -> dict[str, str]:
    if rule is None:
        return {"exact rule": f"none, because {why_not}"}
    found = {} if see_one_context(rule) else {"inverse Hessian": NO_SINGLE_G}
    reason = obstacle(rule)
    return found if reason is None else {**found, "closed form": f"none, because {reason}"}
