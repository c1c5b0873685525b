"""Unrolling: heads → layer tensors → words → update rule → closed form → text, with a certificate."""

from typing import Any

from interp.layout import BlockLayout
from interp.unrolling.blocks import BlockClass, describe_block
from interp.unrolling.certificate import Certificate
from interp.unrolling.certify import certify
from interp.unrolling.circuits import Circuit, extract_circuits
from interp.unrolling.fit import fit_to_prompts
from interp.unrolling.kernel_operator import KernelRule, kernel_operators
from interp.unrolling.messages import Messages, messages
from interp.unrolling.projections import Projections, projections
from interp.unrolling.rule import GroupRule, LayerRule, UpdateRule
from interp.unrolling.spectral import ClosedForm, closed_form
from interp.unrolling.words import Word, alphabet, project, weight_fit

__all__ = [
    "BlockClass",
    "Certificate",
    "ClosedForm",
    "KernelRule",
    "LayerRule",
    "Messages",
    "Projections",
    "UpdateRule",
    "certify",
    "closed_form",
    "describe_block",
    "kernel_operators",
    "messages",
    "projections",
    "unroll",
]


def unroll(
    model: Any, layout: BlockLayout | None = None, prompts: Any = None, *, core_error: float = 2e-3
) -> UpdateRule:
    """The update rule of a linear-attention model, from its weights.

    Args:
        model: attention-only, with linear kernels, in the protocol of `interp.hooks.Hooked` (weights in
            TransformerLens's layout, `cfg.kernel` an AttentionKernel).
        layout: the meaning of rows and columns; by default the model's own.
        prompts: tokens [batch, token, d_model], or a value with such `.tokens`. With them the function that the words
            explain is measured, coefficients are refitted where that lowers the held-out error, and a core is selected.
        core_error: the rms relative error (central 99 % of held-out prompts) that the core must reach.

    Raises:
        ValueError: the model is no composition of cubic maps, a weight is NaN or inf, the layout does not fit.
    """
    layout = layout_of(model, layout)
    circuits = extract_circuits(model, layout)
    words = alphabet(layout)
    rule = UpdateRule(tuple(_layer_rule(circuit, layout, words) for circuit in circuits), layout, model.cfg.kernel)
    return rule if prompts is None else fit_to_prompts(rule, prompts, core_error)


def layout_of(model: Any, layout: BlockLayout | None) -> BlockLayout:
    """The layout given, or the model's own."""
    layout = getattr(model, "layout", None) if layout is None else layout
    if not isinstance(layout, BlockLayout):
        raise ValueError(
            "unroll: the model carries no layout; pass one, as in unroll(model, BlockLayout.standard(x=10, y=5))"
        )
    return layout


def _layer_rule(circuit: Circuit, layout: BlockLayout, words: list[Word]) -> LayerRule:
    """The words of every group, over the blocks in which its update reaches the output."""
    groups = []
    for group in circuit.groups:
        live = [name for name in layout.columns if any(name in circuit.live[role] for role in group.roles)]
        mine = [word for word in words if word.into in live]
        values = project(group, mine, layout)
        projected = dict(zip(mine, values.tolist(), strict=True))
        unread = tuple(name for name in layout.columns if name not in live)
        fit = weight_fit(group, mine, values, layout, live)
        groups.append(GroupRule(group, projected, fit, words=projected, unread=unread))
    return LayerRule(tuple(groups), circuit.live)
