"""Preconditioned Richardson iteration in softmax models with MLPs, from their kernel-operator words (MATH §6)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.identification.fit import ERROR_FLOOR, Fit
from interp.layout import BlockLayout
from interp.unrolling.kernel_operator import KernelRule, kernel_operators
from interp.unrolling.kernel_operator_form import NotRichardson, RichardsonForm, richardson_form
from interp.unrolling.kernel_operator_mlp import NAMED

FAMILY = "preconditioned Richardson"


def preconditioned_richardson(model: Any, layout: BlockLayout, tokens: Tensor) -> Fit:
    """The family fitted to a softmax model, or why it is not in it, with the layer."""
    rule = kernel_operators(model, layout, tokens)
    distances = tuple(_left_out(rule, index) for index in range(len(rule.layers)))
    try:
        form = richardson_form(rule)
    except NotRichardson as error:
        return Fit(FAMILY, {}, 0, rule.predict, distances, float("inf"), 0.0, str(error))
    settings = {"omega": form.omega, "lambda": form.lam, "bandwidth": form.bandwidth, "shift": form.shift}

    def predict(tokens: Tensor) -> Tensor:
        return descend(layout, form, rule.layers[0].heads[0].columns.flag, tokens)

    return Fit(FAMILY, settings, len(settings), predict, distances, max(distances) / NAMED, ERROR_FLOOR, None)


def _left_out(rule: KernelRule, index: int) -> float:
    layer = rule.layers[index]
    return max([head.residual for head in layer.heads] + [terms.residual for terms in layer.mlp.values()])


def descend(
    layout: BlockLayout, form: RichardsonForm, flag: str | None, tokens: Float[Tensor, "batch row d_model"]
) -> Float[Tensor, "batch query out"]:
    """The answers of the iteration, from its formula; rows marked by the flag are no points."""
    u, at = layout.coordinates(tokens), layout.slices
    n = layout.n_context(u.shape[1])
    marked = u[0, :n, at[flag].start] > 0.5 if flag else torch.zeros(n, dtype=torch.bool)
    x, y, queries = (
        u[:, :n][:, ~marked][..., at["x"]],
        u[:, :n][:, ~marked][..., at[form.roles["y"]]],
        u[:, n:, at["x"]],
    )
    kernel = Covariance("rbf", form.bandwidth)
    K = kernel(x, x)
    P, alpha = K.sum(-1, keepdim=True) + form.shift, torch.zeros_like(y)
    for _ in range(form.steps):
        alpha = alpha + form.omega * (y - K @ alpha - form.lam * alpha) / P
    return layout.sign * kernel(queries, x) @ alpha
