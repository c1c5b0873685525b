"""Causal checks: swap the states of two prompts, or write implicit weights into a state, and see what is answered.

Linear attention lets the algebra say what must happen. A row moved by x δ / sign in the read-out block, x its own
input, is a row of a model whose implicit weights are w_l + δ: the query rows then answer B (w_l + δ), and the context
rows hold the labels that those weights leave over. With the rule's two words and G = AᵀA,

    query rows alone       the prediction moves by B δ: nothing reads D, so no later layer mends it
    query and context      by B ρ_l(G) δ,         ρ_l = Π_{m ≥ l} (1 − γ_m g p_m²): later layers iterate the error away
    context rows alone     by B (ρ_l(G) − 1) δ:   they take the error for one of the query's weights

A quantity that can be read and does not do this is read, not used.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.decoding.exact import rule_of
from interp.decoding.forward import Forward, forward_of, read_stream
from interp.decoding.moves import Interchange, Written
from interp.hooks import hook_name, run_with_hooks
from interp.layout import BlockLayout
from interp.unrolling import ClosedForm, closed_form
from interp.unrolling.rule import UpdateRule

Edit = Callable[[Tensor], Tensor]


def interchange(
    model: Any, prompts: Any, depth: int, rows: str = "query", layout: BlockLayout | None = None
) -> Interchange:
    """Every prompt goes on at a depth with the rows of the prompt before it, of the query, the context or both.

    Raises:
        ValueError: fewer than two prompts, no such depth or rows, and what `decode` refuses.
    """
    forward = forward_of(model, prompts, layout)
    if len(forward.u) < 2:
        raise ValueError("interchange: one prompt has no other to take a state from; pass at least two")

    def edit(z: Tensor) -> Tensor:
        return _rowwise(forward, z, rows, z.roll(1, dims=0))

    return Interchange(depth, rows, *_run(forward, depth, edit)[:3])


def write_weights(
    model: Any,
    prompts: Any,
    depth: int,
    delta: Float[Tensor, "d out"] | Float[Tensor, "prompt d out"],
    rows: str = "all",
    layout: BlockLayout | None = None,
) -> Written:
    """Move the implicit weights at a depth by δ, in the query rows, the context rows or both, through a hook.

    Raises:
        ValueError: δ has another shape than the weights, is not finite or moves no answer of a prompt, no such depth or
            rows, and what `decode` refuses.
    """
    forward = forward_of(model, prompts, layout)
    if not forward.is_stream:
        raise ValueError(
            "write_weights: tokens are read into the residual stream by learned weights, so the layout does not say "
            "where in it weights are held; find a direction with a probe and use steer"
        )
    expected = _expected(forward, delta)
    shift = torch.zeros_like(forward.u)
    shift[..., forward.y] = forward.u[..., forward.x] @ delta.to(forward.u) / forward.layout.sign
    clean, measured, by_rule, rule = _run(forward, depth, lambda z: _rowwise(forward, z, rows, z + shift))
    form = closed_form(rule) if rule else None
    return Written(
        depth=depth,
        rows=rows,
        expected=expected,
        measured=measured - clean,
        by_rule=None if by_rule is None else by_rule - clean,
        by_closed_form=None if form is None else _move(forward, form, depth, delta.to(forward.u), rows),
    )


def _expected(forward: Forward, delta: Tensor) -> Float[Tensor, "prompt query out"]:
    """B δ, of a δ of which a share can be measured."""
    d, out = forward.b.shape[1], forward.C.shape[2]
    if delta.shape[-2:] != (d, out) or delta.shape[:-2] not in ((), (len(forward.u),)):
        raise ValueError(
            f"write_weights: delta is {list(delta.shape)}, the implicit weights are [{d}, {out}] for each of "
            f"{len(forward.u)} prompts"
        )
    if not delta.isfinite().all():
        raise ValueError("write_weights: delta holds NaN or inf; pass finite weights")
    expected = forward.u[:, forward.n :, forward.x] @ delta.to(forward.u)
    still = (expected.flatten(1).norm(dim=1) == 0).nonzero().flatten().tolist()
    if still:
        raise ValueError(
            f"write_weights: delta moves no answer of prompt {still[0]}, B δ = 0, so no share of it can be measured; "
            "pass a delta that is not 0 on its queries"
        )
    return expected


def edited(forward: Forward, depth: int, edit: Edit) -> Float[Tensor, "prompt query out"]:
    """The model's answers if its residual stream at a depth is edited through a hook, in block coordinates if it has
    any."""
    layers, layout = forward.model.cfg.n_layers, forward.layout
    name = hook_name("resid_pre", depth) if depth < layers else hook_name("resid_post", layers - 1)
    last: list[Tensor] = []

    def write(z: Tensor, hook: Any) -> Tensor:
        return edit(layout.coordinates(z)) @ layout.basis.T.to(z) if forward.is_stream else edit(z)

    hooks = [(name, write), (hook_name("resid_post", layers - 1), lambda z, hook: last.append(z))]
    with torch.no_grad():
        run_with_hooks(forward.model, forward.u @ layout.basis.T.to(forward.u), hooks)
        return read_stream(forward.model, layout, last[-1])


def _run(forward: Forward, depth: int, edit: Edit) -> tuple[Tensor, Tensor, Tensor | None, UpdateRule | None]:
    """Predictions without the edit, with it, and with it by the exact rule; and that rule."""
    if not 0 <= depth <= forward.model.cfg.n_layers:
        raise ValueError(f"depth={depth} must lie between 0 and the model's {forward.model.cfg.n_layers} layers")
    rule, _ = rule_of(forward.model, forward.layout)
    clean, measured = edited(forward, depth, lambda z: z), edited(forward, depth, edit)
    return clean, measured, _by_rule(rule, forward.u, depth, edit) if rule else None, rule


def _by_rule(rule: UpdateRule, u: Float[Tensor, "prompt token D"], depth: int, edit: Edit) -> Tensor:
    """The rule's prediction with the edit between layers depth − 1 and depth."""
    with torch.no_grad():
        z = u if depth else edit(u)
        for layer in range(rule.depth):
            z = z + rule.step(layer, z, "exact")
            z = edit(z) if layer == depth - 1 else z
        return rule.read(z)


def _rowwise(forward: Forward, z: Tensor, rows: str, other: Tensor) -> Tensor:
    """The state z with the given rows of another."""
    if rows not in ("query", "context", "all"):
        raise ValueError(f"rows={rows!r} must be query, context or all")
    context = (other if rows != "query" else z)[:, : forward.n]
    return torch.cat([context, (other if rows != "context" else z)[:, forward.n :]], dim=1)


def _move(forward: Forward, form: ClosedForm, depth: int, delta: Tensor, rows: str) -> Tensor:
    """B ρ δ, B (ρ − 1) δ or B δ."""
    scale = forward.n if form.per_n else 1
    g, basis = torch.linalg.eigh(forward.A.mT @ forward.A / scale)
    rho = torch.ones_like(g)
    for layer in range(depth, form.depth):
        rho = rho * (1 - g * form.inverse_hessian(g, layer))
    kept = {"query": torch.ones_like(g), "all": rho, "context": rho - 1}[rows]
    return forward.u[:, forward.n :, forward.x] @ (basis * kept[:, None]) @ basis.mT @ delta
