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
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.decoding.exact import rule_of
from interp.decoding.forward import Forward, forward_of, read_stream
from interp.hooks import hook_name, run_with_hooks
from interp.layout import BlockLayout
from interp.stats import relative_errors
from interp.unrolling import ClosedForm, closed_form
from interp.unrolling.rule import UpdateRule

Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Interchange:
    """Prompts that went on from another prompt's state at a depth.

    Args:
        rows: whose state was taken from the donor.
        clean: predictions without it [prompt, query, out].
        measured: with it.
        by_rule: what the exact rule says, or None where there is none.
    """

    depth: int
    rows: str
    clean: Tensor
    measured: Tensor
    by_rule: Tensor | None

    @property
    def effect(self) -> float:
        """Median relative change of the prediction."""
        return relative_errors(self.measured, self.clean).median().item()

    @property
    def error(self) -> float | None:
        """The largest relative difference from what the rule says."""
        return None if self.by_rule is None else relative_errors(self.measured, self.by_rule).max().item()

    def __str__(self) -> str:
        rule = "no rule to compare with" if self.error is None else f"the rule is off by {self.error:.2g} at worst"
        return f"depth {self.depth}, {self.rows} rows of another prompt: prediction moves by {self.effect:.3g}; {rule}"

    def to_dict(self) -> dict[str, Any]:
        return {"depth": self.depth, "rows": self.rows, "effect": self.effect, "error": self.error}


@dataclass(frozen=True, eq=False)
class Written:
    """Implicit weights moved by δ at a depth, and how the prediction moved.

    Args:
        expected: B δ, the move if w alone made the prediction and nothing came after [prompt, query, out].
        measured: the model's move.
        by_rule: the exact rule's, or None.
        by_closed_form: that of the rule's two words, or None.
    """

    depth: int
    rows: str
    expected: Tensor
    measured: Tensor
    by_rule: Tensor | None
    by_closed_form: Tensor | None

    @property
    def gain(self) -> float:
        """The share of B δ that reaches the prediction, ⟨move, B δ⟩ / ‖B δ‖²; median over prompts."""
        return gains(self.measured, self.expected).median().item()

    @property
    def gain_by_rule(self) -> float | None:
        return None if self.by_rule is None else gains(self.by_rule, self.expected).median().item()

    @property
    def error(self) -> float | None:
        """The largest difference from the rule's move, relative to ‖B δ‖."""
        return None if self.by_rule is None else _off(self.measured, self.by_rule, self.expected).max().item()

    @property
    def closed_form_error(self) -> float | None:
        """The median difference from the closed form's move, relative to ‖B δ‖."""
        found = self.by_closed_form
        return None if found is None else _off(self.measured, found, self.expected).median().item()

    def __str__(self) -> str:
        text = f"depth {self.depth}, w moved in {self.rows} rows: {self.gain:.4g} of it reaches the prediction"
        if self.error is not None:
            text += f"; the rule says {self.gain_by_rule:.4g} and is off by {self.error:.2g} at worst"
        return text + ("" if self.closed_form_error is None else f", the closed form by {self.closed_form_error:.2g}")

    def to_dict(self) -> dict[str, Any]:
        names = ("depth", "rows", "gain", "gain_by_rule", "error", "closed_form_error")
        return {name: getattr(self, name) for name in names}


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


def gains(
    measured: Float[Tensor, "prompt query out"], expected: Float[Tensor, "prompt query out"]
) -> Float[Tensor, "prompt"]:
    """⟨measured, expected⟩ / ‖expected‖² of each prompt."""
    return (measured * expected).flatten(1).sum(1) / expected.flatten(1).square().sum(1)


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


def _off(measured: Tensor, known: Tensor, size: Tensor) -> Float[Tensor, "prompt"]:
    return (measured - known).flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1)
