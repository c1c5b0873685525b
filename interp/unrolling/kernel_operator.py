"""Softmax models as kernel operators: words for heads from the weights, words for MLPs from what they compute.

`unroll` is exact and for linear attention; softmax and MLPs are no polynomials of the tokens, and this is what can be
read of them: a similarity of rows, the columns it moves, and token-local terms, with the model beside it.
"""

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import capture, hook_name
from interp.layout import BlockLayout
from interp.stats import ErrorSummary, pooled_errors
from interp.unrolling.kernel_operator_heads import KernelHead, find_columns, read_head
from interp.unrolling.kernel_operator_mlp import TokenTerms, read_mlp
from interp.unrolling.moments import check_prompts


@dataclass(frozen=True)
class KernelLayer:
    """Heads, then what the MLP adds to each column (nothing without an MLP)."""

    heads: tuple[KernelHead, ...]
    mlp: dict[str, TokenTerms]

    def to_dict(self) -> dict[str, Any]:
        mlp = {name: terms.to_dict() for name, terms in self.mlp.items()}
        return {"heads": [head.to_dict() for head in self.heads], "mlp": mlp}


@dataclass(frozen=True)
class KernelRule:
    """A softmax model in words, and how far they are off.

    Args:
        layers: what each does.      layout: rows and columns.
        output: relative error of the rule's answers on prompts that it was not fitted to; None without prompts.
        by_layer: largest error of a layer's update from the model's own input to it, relative to the largest update.
    """

    layers: tuple[KernelLayer, ...]
    layout: BlockLayout
    output: ErrorSummary | None = None
    by_layer: tuple[float, ...] = ()

    def step(self, index: int, u: Float[Tensor, "batch row D"]) -> Float[Tensor, "batch row D"]:
        """What a layer adds, in block coordinates."""
        layer, at = self.layers[index], self.layout.slices
        allowed = self.layout.allowed(u.shape[1], len(layer.heads)).to(u.device)
        after = u.clone()
        for head, sees in zip(layer.heads, allowed, strict=True):
            scores = head.scores(u, self.layout).masked_fill(~sees, -torch.inf)
            after = after + scores.softmax(-1).nan_to_num() @ u @ head.V.to(u)
        columns = {name: after[..., span.start] for name, span in at.items() if span.stop - span.start == 1}
        moved = after.clone()
        for name, terms in layer.mlp.items():
            moved[..., at[name].start] += terms(columns)
        return moved - u

    def predict(self, tokens: Float[Tensor, "batch row d_model"]) -> Float[Tensor, "batch query out"]:
        """The rule's answers."""
        u = self.layout.coordinates(tokens)
        for index in range(len(self.layers)):
            u = u + self.step(index, u)
        return self.layout.sign * u[:, -self.layout.n_query :, self.layout.slices[self.layout.readout]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `update_rule` is that of preconditioned Richardson, or why it is not."""
        from interp.unrolling.kernel_operator_form import named

        return {
            "layout": self.layout.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
            "update_rule": named(self),
            "output": self.output.to_dict() if self.output else None,
            "by_layer": list(self.by_layer),
        }

    def __str__(self) -> str:
        from interp.unrolling.kernel_operator_text import text

        return text(self)


def kernel_operators(model: Any, layout: BlockLayout | None = None, prompts: Any = None) -> KernelRule:
    """Kernel-operator words of a softmax model.

    Args:
        model: softmax attention and, if any, MLPs on tokens that are the residual stream.
        layout: the meaning of rows and columns, by default the model's own; the inputs are the block x.
        prompts: tokens [batch, token, d_model] or a value with such `.tokens`: which columns hold ‖x‖², 1 and a flag is
            found in them, and the MLPs' functions are fitted on one half and certified on the other. Without them
            heads are bilinear forms, and a model with MLPs is refused.

    Raises:
        ValueError: another kernel; norms, biases, positions, read-ins; MLPs without prompts; fewer than two prompts.
    """
    layout = getattr(model, "layout", None) if layout is None else layout
    if not isinstance(layout, BlockLayout) or "x" not in layout.columns:
        raise ValueError("kernel_operators: the model carries no layout with a block x; pass one")
    check_softmax(model, with_prompts=prompts is not None)
    copy = deepcopy(model).double().requires_grad_(False)
    tokens = None if prompts is None else check_prompts(prompts, layout)
    if tokens is None:
        return KernelRule(tuple(KernelLayer(_heads(block, model, layout, None), {}) for block in copy.blocks), layout)
    if len(tokens) < 2:
        raise ValueError("kernel_operators: needs at least two prompts, one to fit MLPs and one to check the rule")
    half = len(tokens) // 2
    rule = KernelRule(_layers(copy, layout, tokens[:half]), layout)
    return _certified(rule, copy, tokens[half:])


def check_softmax(model: Any, with_prompts: bool) -> None:
    """Refuse what has no such words, in one sentence."""
    cfg = model.cfg
    kernel = getattr(cfg, "kernel", None)
    softmax = kernel is not None and (kernel.similarity, kernel.normalisation) == ("exp", "sum")
    reasons = [
        (not softmax or getattr(kernel, "scale", "n") == "n", f"its attention kernel is {kernel}; take `unroll`"),
        (getattr(cfg, "normalization_type", None) is not None, "it has norms"),
        (getattr(cfg, "use_biases", False), "its attention has biases"),
        (getattr(cfg, "positional_embedding_type", None) is not None, "it adds position embeddings"),
        (cfg.d_in is not None or cfg.d_out is not None, "it has a learned read-in or read-out"),
        (not cfg.attn_only and not with_prompts, "it has MLPs, whose functions are fitted on prompts; pass some"),
    ]
    for fails, reason in reasons:
        if fails:
            raise ValueError(f"kernel_operators: cannot put this model in words: {reason}")


def _heads(block: Any, model: Any, layout: BlockLayout, columns: Any) -> tuple[KernelHead, ...]:
    """In block coordinates, the scale inside."""
    scale = model.cfg.kernel.scale_factor(model.cfg.d_head, 1)
    M = scale * layout.basis.T @ block.attn.W_Q @ block.attn.W_K.mT @ layout.basis
    V = layout.basis.T @ block.attn.W_V @ block.attn.W_O @ layout.dual
    return tuple(read_head(m, v, layout, columns) for m, v in zip(M, V, strict=True))


def _layers(model: Any, layout: BlockLayout, tokens: Tensor) -> tuple[KernelLayer, ...]:
    columns = find_columns(layout.coordinates(tokens), layout)
    names = [hook_name(point, layer) for layer in range(model.cfg.n_layers) for point in ("resid_pre", "attn_out")]
    cache = {} if model.cfg.attn_only else capture(model, tokens, names)
    layers = []
    for layer, block in enumerate(model.blocks):
        mlp = {}
        if not model.cfg.attn_only:
            before = cache[hook_name("resid_pre", layer)] + cache[hook_name("attn_out", layer)]
            context = layout.coordinates(before)[:, layout.rows("context", before.shape[1])]
            rows = _unmarked(context.flatten(0, 1), layout, columns.flag)
            mlp = read_mlp(_in_blocks(block.mlp, layout), rows, layout)
        layers.append(KernelLayer(_heads(block, model, layout, columns), mlp))
    return tuple(layers)


def _unmarked(rows: Tensor, layout: BlockLayout, flag: str | None) -> Tensor:
    return rows if flag is None else rows[rows[:, layout.slices[flag].start] < 0.5]


def _in_blocks(mlp: Any, layout: BlockLayout) -> Any:
    def function(rows: Tensor) -> Tensor:
        return layout.coordinates(mlp((rows @ layout.basis.T)[None])[0])

    return function


def _certified(rule: KernelRule, model: Any, tokens: Tensor) -> KernelRule:
    """The rule with its errors against the forward pass, by layer and at the output."""
    names = [hook_name("resid_pre", 0), *(hook_name("resid_post", layer) for layer in range(model.cfg.n_layers))]
    cache = capture(model, tokens, names)
    states = [rule.layout.coordinates(cache[name]) for name in names]
    errors = []
    for layer, (before, after) in enumerate(pairwise(states)):
        gap = (rule.step(layer, before) - (after - before)).abs().amax()
        errors.append((gap / (after - before).abs().amax()).item())
    predicted, truth = rule.predict(tokens), rule.layout.predict(cache[names[-1]])
    return KernelRule(rule.layers, rule.layout, ErrorSummary.of(pooled_errors(predicted, truth)), tuple(errors))
