"""The blocks of a Richardson network: what one head of softmax attention and one ReLU MLP write in each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.constructions.richardson_domain import Domain
from models.constructions.richardson_units import Units, linear, padded, product, reciprocal, together, vector
from models.transformer import HookedTransformer

SELF = 1e3  # score of BOS with itself: it sees nothing else, so that its α stays 0


@dataclass(frozen=True)
class Design:
    """Columns and ranges shared by all blocks; P = D + shift·I, m segments a square."""

    layout: BlockLayout
    domain: Domain
    omega: float
    shift: float
    m: int
    alpha_max: float

    @property
    def p(self) -> tuple[str, float]:
        """p = shift/(D + shift), and its largest value in a context row, where D ≥ 1."""
        return "p", self.shift / (1 + self.shift)

    @property
    def alpha(self) -> tuple[str, float]:
        return "alpha", self.alpha_max

    @property
    def s(self) -> tuple[str, float]:
        """s = P⁻¹Kα: |s| ≤ min(f_max, D alpha_max)/(D + shift), whose largest value is at D = f_max/alpha_max."""
        f = self.domain.f_max
        return "s", f * self.alpha_max / (f + self.alpha_max * self.shift)

    @property
    def w(self) -> tuple[str, float]:
        """w = D + shift."""
        return "w", self.domain.d_max + self.shift

    def read_in(self) -> Units:
        """c = p y/shift, α = ωc (the first step), w = shift/p."""
        write = {"c": 1 / self.shift, "alpha": self.omega / self.shift}
        c = product(self.layout, self.p, ("y", self.domain.y_max), write, self.m)
        return together([c, reciprocal(self.layout, ("p", self.shift / self.w[1]), self.shift, "w", self.m)])

    def step(self) -> list[Units]:
        """α += ω (c − s − (λ/shift) p α)."""
        move = linear(self.layout, {"c": 1.0, "s": -1.0}, {"alpha": self.omega})
        decay = -self.omega * self.domain.lam / self.shift
        return [move, product(self.layout, self.p, self.alpha, {"alpha": decay}, self.m)]

    def answer(self) -> list[Units]:
        """out = s w, in place of what was there."""
        forget = linear(self.layout, {"out": 1.0}, {"out": -1.0})
        return [forget, product(self.layout, self.s, self.w, {"out": 1.0}, self.m)]

    def clear(self) -> Units:
        """s = 0, for the next block to write."""
        return linear(self.layout, {"s": 1.0}, {"s": -1.0})


def heads(design: Design, value: str, into: str) -> dict[str, Float[Tensor, "1 rows columns"]]:
    """One head: the pattern is P⁻¹K over the points and p on BOS; it moves the column `value` to `into`.

    The score is −‖x_i − x_k‖²/2h² for a point k, the row term −‖x_i‖²/2h² included, and log(shift) for BOS.
    """
    layout, h = design.layout, design.domain.bandwidth
    d, half = layout.widths["x"], -0.5 / h**2
    Q, K, V, out = (torch.zeros(layout.d_model, d + 3, dtype=torch.float64) for _ in range(4))
    Q[layout.slices["x"], :d] = K[layout.slices["x"], :d] = torch.eye(d, dtype=torch.float64) / h
    pairs = [
        ({"norm": half}, {"constant": 1.0, "bos": -1.0}),
        ({"constant": 1.0}, {"norm": half, "bos": math.log(design.shift)}),
        ({"bos": SELF}, {"bos": 1.0}),
    ]
    for column, (query, key) in enumerate(pairs, start=d):
        Q[:, column], K[:, column] = vector(layout, query), vector(layout, key)
    V[:, 0], out[:, 0] = vector(layout, {value: 1.0}), vector(layout, {into: 1.0})
    return {"W_Q": Q[None], "W_K": K[None], "W_V": V[None], "W_O": out.T[None]}


def network(design: Design, blocks: Sequence[tuple[str, str, Units]]) -> HookedTransformer:
    """The model in float64 whose blocks are (column attended to, column written to, MLP)."""
    layout, width = design.layout, max(part.width for _, _, part in blocks)
    kernel = AttentionKernel("exp", "sum")
    d_head = layout.widths["x"] + 3
    cfg = TransformerConfig(len(blocks), 1, layout.d_model, d_head, kernel=kernel, attn_only=False, d_mlp=width)
    weights = {}
    for layer, (value, into, part) in enumerate(blocks):
        part = padded(part, width)
        mlp = {"W_in": part.W_in, "b_in": part.b_in, "W_out": part.W_out, "b_out": part.b_out}
        weights |= {f"blocks.{layer}.attn.{name}": matrix for name, matrix in heads(design, value, into).items()}
        weights |= {f"blocks.{layer}.mlp.{name}": matrix.contiguous() for name, matrix in mlp.items()}
    return HookedTransformer.from_weights(cfg, layout, weights)
