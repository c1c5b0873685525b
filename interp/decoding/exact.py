"""The exact rule as a third road: no forward pass, no query, no derivative in it.

A query row of linear attention that sees context rows alone moves linearly, z_q ← z_q (I + Σ_h Q_h S_l V_h), so

    z_q at depth l = z_q at depth m · T_{m→l},     T_{m→l} = Π_{m ≤ k < l} (I + Σ_h Q_h S_k V_h)

with S_k the second moments of the context at depth k, and w_l = sign · T_{0→l}[x, y].
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacfwd, vmap

from interp.decoding.forward import Forward
from interp.layout import BlockLayout
from interp.unrolling import unroll
from interp.unrolling.moments import second_moments
from interp.unrolling.rule import UpdateRule, WordFeatures, exact_update
from interp.visibility import machine_of

INPUT = "read-out of the input"
"""The contribution that no layer makes: the answer read at depth 0."""

Steps = list[Float[Tensor, "prompt D D"]]


def rule_of(model: Any, layout: BlockLayout) -> tuple[UpdateRule | None, str | None]:
    """The model's rule where its query rows move linearly, or the reason why there is none."""
    try:
        rule = unroll(model, layout)
    except ValueError as error:
        return None, str(error).removeprefix("unroll: ").partition(", and activations of any model")[0]
    reason = not_linear(rule)
    return (None, reason) if reason else (rule, None)


def not_linear(rule: UpdateRule) -> str | None:
    """Why a rule's read-out is not linear in the query row, or None."""
    for index, layer in enumerate(rule.layers):
        for group in (item.group for item in layer.groups):
            if "query" in group.roles and group.rule != "context" and machine_of(group.rule) is None:
                return f"in layer {index} query rows see rows ({group.rule}) that depend on the query"
            if "context" in group.roles and group.rule == "all":
                return f"in layer {index} context rows see the query rows"
    return None


def query_steps(rule: UpdateRule, u: Float[Tensor, "prompt token D"]) -> Steps:
    """I + Σ_h Q_h S_l V_h by layer."""
    return [_query_step(rule, layer, z) for layer, z in enumerate(context_states(rule, u)[:-1])]


def context_states(rule: UpdateRule, u: Float[Tensor, "prompt token D"]) -> list[Float[Tensor, "prompt token D"]]:
    """All rows at depth 0, 1, …, L; unlike `rule.states` it can be differentiated and mapped over."""
    states = [u]
    for layer in range(rule.depth):
        states.append(states[-1] + rule.step(layer, states[-1], "exact"))
    return states


def through(steps: Steps) -> Float[Tensor, "depth prompt D D"]:
    """I, then the product of the first step, of the first two, …"""
    products = [torch.eye(steps[0].shape[-1]).to(steps[0]).expand_as(steps[0])]
    for step in steps:
        products.append(products[-1] @ step)
    return torch.stack(products)


def weights_of_rule(rule: UpdateRule, forward: Forward) -> Float[Tensor, "depth prompt d out"]:
    """w_l = sign · T_{0→l}[x, y]."""
    return _weights(rule, forward, forward.u)


def weight_derivatives_of_rule(rule: UpdateRule, forward: Forward) -> Float[Tensor, "depth prompt d out n label"]:
    """∂w_l/∂C of the rule."""

    def one(u: Tensor, C: Tensor) -> Tensor:
        return jacfwd(lambda labels: _weights(rule, forward, forward.placed(u[None], C=labels[None]))[:, 0])(C)

    return vmap(one, chunk_size=16)(forward.u, forward.C).transpose(0, 1)


def contributions(
    rule: UpdateRule, u: Float[Tensor, "prompt token D"]
) -> list[dict[str, Float[Tensor, "prompt query out"]]]:
    """What each word adds to the prediction, by layer, in the model's own states; "rest" is what no word says.

    With what is read out of the input, which layer 0 holds first, they sum to the prediction.
    """
    states = context_states(rule, u)
    first, *later = [_of_layer(rule, layer, states[layer]) for layer in range(rule.depth)]
    return [{INPUT: rule.read(u), **first}, *later]


def _of_layer(rule: UpdateRule, layer: int, z: Tensor) -> dict[str, Tensor]:
    found, layout, per = {}, rule.layout, rule.layout.n_context(z.shape[1]) if rule.per_n else 1
    queries = layout.rows("query", z.shape[1])
    for item in rule.layers[layer].groups:
        if "query" not in item.group.roles:
            continue
        S = second_moments(z, layout, item.group.rule, "query")
        features = WordFeatures(z[:, queries], S, layout)
        for word, coefficient in item.words.items():
            if word.into == layout.readout:
                found[item.label(word)] = layout.sign * coefficient * features[word] / per
    total = rule.read(rule.step(layer, z, "exact"))
    return {**found, "rest": total - sum(found.values(), torch.zeros_like(total))}


def _weights(rule: UpdateRule, forward: Forward, u: Tensor) -> Tensor:
    return rule.layout.sign * through(query_steps(rule, u))[..., forward.x, forward.y]


def _query_step(rule: UpdateRule, layer: int, z: Tensor) -> Tensor:
    eye = torch.eye(z.shape[-1]).to(z).expand(len(z), -1, -1)
    step = torch.zeros_like(z[:, :1] * eye)
    for item in rule.layers[layer].groups:
        if "query" in item.group.roles:
            step = step + exact_update(item.group, eye, second_moments(z, rule.layout, item.group.rule, "query"))
    return eye + (step / rule.layout.n_context(z.shape[1]) if rule.per_n else step)
