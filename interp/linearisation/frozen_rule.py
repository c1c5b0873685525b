"""Linear attention with norms, unrolled: what it is once the norms' scales are frozen.

A norm maps row i to z_i N/s_i + b with a matrix N = (I − 11ᵀ/D) diag(w) and a scale s_i of the row. With the scales
given, and the row written with a constant, ẑ_i = (z_i/s_i, 1), a layer of linear attention after a norm is

    Δz_i = Σ_h ẑ_i Q̂_h Ŝ_i V̂_h,    Ŝ_i = Σ_{k visible from i} ẑ_kᵀ ẑ_k,    Q̂_h = [N; b] Q_h [N; b]ᵀ,  V̂_h = [N; b] V_h

that is linear attention with a constant column on rows that enter with a scale of their own. Q̂, V̂ and the words they
project on are of the weights alone; only the scales s_i are of the prompt. A norm of the stream itself then maps
z_i ← z_i N/s_i + b. The rule with a prompt's own scales is the model at that prompt, and at no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import ROLES, BlockLayout
from interp.unrolling import layout_of
from interp.unrolling.circuits import Group, by_rule_and_roles
from interp.unrolling.moments import check_prompts
from interp.unrolling.rule import GroupRule, LayerRule, UpdateRule
from interp.unrolling.words import alphabet, project, weight_fit

ONE = "one"
Level = str
Scales = Mapping[str, Float[Tensor, "#prompt #token 1"]]
CENTRED = {"LN": True, "LNPre": True, "RMS": False, "RMSPre": False}


@dataclass(frozen=True)
class Norm:
    """z ↦ z N/s + b in block coordinates, s at the hook point `scale`."""

    scale: str
    N: Float[Tensor, "D D"]
    b: Float[Tensor, "D"]

    def of(self, u: Float[Tensor, "prompt token D"], scales: Scales) -> Float[Tensor, "prompt token D"]:
        return u / scales[self.scale] @ self.N + self.b


@dataclass(frozen=True)
class FrozenLayer:
    """One layer: its groups on rows (z/s, 1), the norm that gives s, and a norm of the stream after it, or None."""

    rule: LayerRule
    before: Norm | None
    after: Norm | None


@dataclass(frozen=True)
class FrozenRule:
    """A stack of linear attention with norms, as a function of prompts and of the norms' scales.

    Args:
        layers: one `FrozenLayer` a layer.
        layout: of the model's residual stream. `augmented`: the same with the block `one`.
        last: the norm before a learned read-out, or None.
        reader: prediction = u @ reader + offset on a query row u in block coordinates.
    """

    layers: tuple[FrozenLayer, ...]
    layout: BlockLayout
    augmented: BlockLayout
    kernel: AttentionKernel
    last: Norm | None
    reader: Float[Tensor, "D out"]
    offset: Float[Tensor, "out"]

    @property
    def scale_points(self) -> tuple[str, ...]:
        """The hook points whose values the rule needs, in the order of the forward pass."""
        norms = [norm for layer in self.layers for norm in (layer.before, layer.after)] + [self.last]
        return tuple(norm.scale for norm in norms if norm is not None)

    def predict(
        self, tokens: Float[Tensor, "prompt token d_model"], scales: Scales, level: Level = "exact"
    ) -> Float[Tensor, "prompt query out"]:
        """The answers to prompts, the norms' scales being these.

        Raises:
            ValueError: a scale is missing, or the level is neither "exact" nor "words".
        """
        if level not in ("exact", "words"):
            raise ValueError(f"the frozen rule has no level {level!r}; it has: exact, words")
        missing = [name for name in self.scale_points if name not in scales]
        if missing:
            raise ValueError(f"the frozen rule needs the scales at {missing[0]!r}; take them with freeze(...).values")
        u = self.layout.coordinates(check_prompts(tokens, self.layout))
        for layer in self.layers:
            u = u + self.step(layer, u, scales, level)
            u = u if layer.after is None else layer.after.of(u, scales)
        rows = u[:, -self.layout.n_query :]
        if self.last is not None:
            rows = self.last.of(u, scales)[:, -self.layout.n_query :]
        return rows @ self.reader + self.offset

    def step(
        self, layer: FrozenLayer, u: Float[Tensor, "prompt token D"], scales: Scales, level: Level
    ) -> Float[Tensor, "prompt token D"]:
        """The update of one layer."""
        scaled = u if layer.before is None else u / scales[layer.before.scale]
        z = torch.cat([scaled, torch.ones_like(u[..., :1])], dim=-1)
        plain = UpdateRule((layer.rule,), self.augmented, self.kernel)
        return plain.step(0, z, level)[..., :-1]  # pyright: ignore[reportArgumentType]

    def words_explain(self) -> tuple[float, ...]:
        """By layer, the share of the squared weight norm of (Q̂, V̂) that the words explain."""
        return tuple(layer.rule.weights_explained for layer in self.layers)

    def __str__(self) -> str:
        from interp.linearisation.frozen_text import to_text

        return to_text(self)


def unroll_frozen(model: Any, layout: BlockLayout | None = None) -> FrozenRule:
    """The frozen rule of an attention-only model with linear kernels and norms, from its weights.

    Args:
        model: in the protocol of `interp.hooks.Hooked`; its norms are `blocks.l.ln1` and, of the stream after a block,
            `blocks.l.ln_post`, and `ln_final` before a learned read-out.
        layout: the meaning of rows and columns of the residual stream; by default the model's own.

    Raises:
        ValueError: softmax, MLPs, biases in the attention, read-ins or positions of its own, an unknown norm.
    """
    layout = layout_of(model, layout)
    _check(model, layout)
    cfg = model.cfg
    augmented = _augmented(layout)
    layers = []
    for index, block in enumerate(model.blocks):
        before = _norm(getattr(block, "ln1", None), f"blocks.{index}.ln1", layout, cfg)
        after = _norm(getattr(block, "ln_post", None), f"blocks.{index}.ln_post", layout, cfg)
        reaches = index + 1 < cfg.n_layers
        layers.append(FrozenLayer(_layer(block.attn, before, layout, augmented, cfg, reaches), before, after))
    learned = getattr(cfg, "d_out", None) is not None
    last = _norm(model.ln_final, "ln_final", layout, cfg) if learned else None
    reader, offset = _reader(model, layout)
    return FrozenRule(tuple(layers), layout, augmented, cfg.kernel, last, reader, offset)


def mean_scales(scales: Scales) -> dict[str, Float[Tensor, "1 token 1"]]:
    """One scale a row for all prompts: with them the rule is one and the same for every prompt."""
    return {name: value.mean(0, keepdim=True) for name, value in scales.items()}


def _check(model: Any, layout: BlockLayout) -> None:
    cfg = model.cfg
    kernel = getattr(cfg, "kernel", None)
    kind = getattr(cfg, "normalization_type", None)
    reasons = [
        (kernel is None or not kernel.is_linear, f"its attention kernel is {kernel or 'softmax'}"),
        (not getattr(cfg, "attn_only", False), "it has MLPs"),
        (getattr(cfg, "positional_embedding_type", None) is not None, "it adds position embeddings"),
        (getattr(cfg, "d_in", None) is not None, "it has a learned read-in"),
        (kind is not None and kind not in CENTRED, f"its norm {kind} is none of {', '.join(CENTRED)}"),
        (layout.d_model != cfg.d_model, f"the layout covers {layout.d_model} columns and its stream has {cfg.d_model}"),
    ]
    reasons += [
        (bool(weight.any()), f"its attention has the bias {name}")
        for name, weight in model.named_parameters()
        if ".attn.b_" in name
    ]
    for fails, reason in reasons:
        if fails:
            raise ValueError(
                f"unroll_frozen: the model is no linear attention with norms because {reason}; "
                "interp.linearisation.linearise takes any hooked model"
            )


def _augmented(layout: BlockLayout) -> BlockLayout:
    """The layout with a column of ones, in block coordinates."""
    if ONE in layout.columns:
        raise ValueError(f"unroll_frozen: the layout has a block {ONE!r} of its own; give it another name")
    eye, columns = torch.eye(layout.d_model + 1, dtype=torch.float64), {}
    for name, at in layout.slices.items():
        columns[name] = eye[:, at]
    return replace(layout, columns={**columns, ONE: eye[:, -1:]})


def _norm(module: Any, name: str, layout: BlockLayout, cfg: Any) -> Norm | None:
    """The norm of a module in block coordinates; None where there is no norm."""
    if module is None or not hasattr(module, "hook_scale"):
        return None
    size = cfg.d_model
    centre = torch.eye(size, dtype=torch.float64)
    if CENTRED[cfg.normalization_type]:
        centre = centre - 1 / size
    w, b = (_vector(module, key, size) for key in ("w", "b"))
    basis, dual = layout.basis, layout.dual
    return Norm(f"{name}.hook_scale", basis.T @ (centre * (1.0 if w is None else w)) @ dual, _or_zeros(b, size) @ dual)


def _vector(module: Any, name: str, size: int) -> Tensor | None:
    value = getattr(module, name, None)
    return None if value is None else value.detach().double().cpu().expand(size)


def _or_zeros(value: Tensor | None, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float64) if value is None else value


def _layer(
    attn: Any, before: Norm | None, layout: BlockLayout, augmented: BlockLayout, cfg: Any, reaches: bool
) -> LayerRule:
    """The groups on augmented rows, every block live; in the last layer the context rows are not read."""
    live = {role: tuple(layout.columns) if reaches or role == "query" else () for role in ROLES}
    words = [word for word in alphabet(augmented) if word.into != ONE]
    groups = []
    for group in _groups(attn, before, layout, cfg):
        if not any(live[role] for role in group.roles):
            continue
        values = project(group, words, augmented)
        fit = weight_fit(group, words, values, augmented, list(layout.columns))
        named = dict(zip(words, values.tolist(), strict=True))
        groups.append(GroupRule(group, named, fit, words=named, unread=(ONE,)))
    return LayerRule(tuple(groups), live)


def _groups(attn: Any, before: Norm | None, layout: BlockLayout, cfg: Any) -> tuple[Group, ...]:
    """Heads of one visibility and the same roles, with Q̂ and V̂ [head, D + 1, D + 1]."""
    W_Q, W_K, W_V, W_O = (getattr(attn, name).detach().double().cpu() for name in ("W_Q", "W_K", "W_V", "W_O"))
    scale = cfg.d_head**-0.5 if cfg.kernel.scale == "sqrt_d_head" else 1.0
    size = cfg.d_model
    N = torch.eye(size, dtype=torch.float64) if before is None else before.N
    b = torch.zeros(1, size, dtype=torch.float64) if before is None else before.b[None]
    into = torch.cat([N, b])  # [D + 1, D], block coordinates
    Q = scale * into @ (layout.basis.T @ W_Q @ W_K.mT @ layout.basis) @ into.T
    V = torch.nn.functional.pad(into @ (layout.basis.T @ W_V @ W_O @ layout.dual), (0, 1))
    return by_rule_and_roles(Q, V, layout)


def _reader(model: Any, layout: BlockLayout) -> tuple[Float[Tensor, "D out"], Float[Tensor, "out"]]:
    """prediction = u @ reader + offset for a query row in block coordinates."""
    if getattr(model.cfg, "d_out", None) is None:
        reader = layout.basis.T @ layout.reader
        return reader, reader.new_zeros(reader.shape[1])
    W, b = (getattr(model.unembed, name).detach().double().cpu() for name in ("W_U", "b_U"))
    return layout.basis.T @ W, b
