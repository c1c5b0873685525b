"""One head's x blocks against projections: Q_xx ≈ c P, V_xx ≈ b₁ P + b₂ (I − P), Q ≈ ± V, Q_xx a random sketch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.unrolling.circuits import Group, normalised
from interp.unrolling.sketch import NearProjection, SketchTest, nearest_projection, sketch_test
from interp.unrolling.words import Word, project, weight_fit

RANK_TOLERANCE = 0.05
"""Singular values of a block below this part of its largest are noise."""
IDLE = 1e-2
"""Heads of a smaller ‖Q‖‖V‖ (live columns), relative to the largest of their group, are left out."""
READS_INPUTS = 0.1
"""Heads of whose ‖Q‖ the x block is a smaller part do something else, and are left out."""
VANISHES = 1e-6
"""A block of V that is a smaller part of ‖V‖ is 0."""


@dataclass(frozen=True, eq=False)
class HeadProjection:
    """One head, its Q scaled to weighted mean singular value 1 as that of canonical heads.

    Args:
        number: of the head among the model's own, or among the canonical heads of its group.
        size: ‖Q‖‖V‖ over the columns that something reads, relative to the largest of the group.
        qk, vp: Q_xx and V_xx as c · projection of their numerical rank; vp is None where V_xx is 0 or nothing reads it.
        levels: (b₁, b₂) of V_xx ≈ b₁ P + b₂ (I − P), P the projection of Q_xx; b₂ is 0 where P is the identity.
        levels_residual: ‖V_xx − b₁P − b₂(I − P)‖ / ‖V_xx‖.
        in_P: shares tr(P P')/min rank of the directions that V_xx reads (left singular vectors) and of those that it
            writes (right ones) with P. V = b₁ P has 1 and 1; a V that carries P elsewhere reads 1 and writes less.
        difference: min over ± of ‖Q_xx/‖Q_xx‖ ∓ V_xx/‖V_xx‖‖.
        into_y: (c, ‖V_yy − c I‖ / ‖V_yy‖), or None where V_yy is 0.
        elsewhere: parts of ‖Q‖ outside Q_xx, and of ‖V‖ (what something reads) outside V_xx and V_yy.
        sketch: the test against a random frame; None for full rank.
        explained: share of the head's own tensor, in squared norm, that words explain.
    """

    number: int
    size: float
    qk: NearProjection
    vp: NearProjection | None
    levels: tuple[float, float] | None
    levels_residual: float | None
    in_P: tuple[float, float] | None
    difference: float | None
    into_y: tuple[float, float] | None
    elsewhere: tuple[float, float]
    sketch: SketchTest | None
    explained: float

    def to_dict(self) -> dict[str, Any]:
        plain = ("number", "size", "levels_residual", "difference", "explained")
        pairs = {name: getattr(self, name) for name in ("levels", "in_P", "into_y", "elsewhere")}
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: None if pair is None else list(pair) for name, pair in pairs.items()},
            "qk": self.qk.to_dict(),
            "vp": None if self.vp is None else self.vp.to_dict(),
            "sketch": None if self.sketch is None else self.sketch.to_dict(),
        }


@dataclass(frozen=True)
class Head:
    """Q and V of one head, V without the columns that nothing reads."""

    number: int
    size: float
    Q: Float[Tensor, "D D"]
    V: Float[Tensor, "D D"]


def reading_heads(
    Q: Float[Tensor, "head D D"], V: Float[Tensor, "head D D"], x: slice, unread: list[int]
) -> list[Head]:
    """The heads that read the inputs and are not idle; `unread` are columns of V."""
    Q, V = normalised(Q, V)
    V = V.index_fill(2, torch.tensor(unread, dtype=torch.long), 0.0)
    sizes = Q.norm(dim=(1, 2)) * V.norm(dim=(1, 2))
    reads = Q[:, x, x].norm(dim=(1, 2)) >= READS_INPUTS * Q.norm(dim=(1, 2))
    kept = (reads & (sizes > IDLE * sizes.max())).nonzero()[:, 0].tolist() if sizes.any() else []
    return [Head(head, (sizes[head] / sizes.max()).item(), Q[head], V[head]) for head in kept]


def numerical_rank(block: Float[Tensor, "row column"]) -> int:
    """Singular values above `RANK_TOLERANCE` of the largest."""
    sigma = torch.linalg.svdvals(block)
    return int((sigma > RANK_TOLERANCE * sigma[0]).sum()) if sigma.any() else 0


def describe_head(
    head: Head, group: Group, words: Iterable[Word], layout: BlockLayout, x: slice, draws: int, seed: int
) -> HeadProjection:
    """All pictures of one head; `words` are those its group may have."""
    y, Q, V = layout.slices[layout.readout], head.Q, head.V
    Q_xx, V_xx, V_yy = Q[x, x], V[x, x], V[y, y]
    qk, alive = nearest_projection(Q_xx, numerical_rank(Q_xx)), bool(V_xx.norm() > VANISHES * V.norm())
    levels, residual = two_levels(V_xx, qk.P) if alive else (None, None)
    return HeadProjection(
        number=head.number,
        size=head.size,
        qk=qk,
        vp=nearest_projection(V_xx, numerical_rank(V_xx)) if alive else None,
        levels=levels,
        levels_residual=residual,
        in_P=_shares(V_xx, qk) if alive else None,
        difference=_difference(Q_xx, V_xx) if alive else None,
        into_y=scalar(V_yy) if V_yy.norm() > VANISHES * V.norm() else None,
        elsewhere=(_outside(Q, [Q_xx]), _outside(V, [V_xx, V_yy])),
        sketch=sketch_test(Q_xx, qk.rank, draws, seed),
        explained=_explained(head, group, list(words), layout),
    )


def scalar(block: Float[Tensor, "x x"]) -> tuple[float, float]:
    """c of the nearest c · I, and the relative distance from it."""
    c, size = block.diagonal().mean(), block.norm()
    gap = (block - c * torch.eye(len(block)).to(block)).norm()
    return c.item(), (gap / size).item() if size else 0.0


def two_levels(V: Float[Tensor, "x x"], P: Float[Tensor, "x x"]) -> tuple[tuple[float, float], float]:
    """Least squares on P and I − P, which are orthogonal."""
    rest = torch.eye(len(P)).to(P) - P
    b = [((part * V).sum() / part.square().sum()).item() if part.norm() > 1e-9 else 0.0 for part in (P, rest)]
    return (b[0], b[1]), ((V - b[0] * P - b[1] * rest).norm() / V.norm()).item()


def _shares(V: Float[Tensor, "x x"], qk: NearProjection) -> tuple[float, float]:
    """Of the directions that V reads and writes with those of P."""
    rank = numerical_rank(V)
    left, _, right = torch.linalg.svd(V)
    frames = left[:, :rank], right[:rank].mT
    read, written = ((qk.P @ frame).square().sum().item() / min(rank, qk.rank) for frame in frames)
    return read, written


def _difference(first: Float[Tensor, "x x"], second: Float[Tensor, "x x"]) -> float:
    first, second = first / first.norm(), second / second.norm()
    return min((first - second).norm().item(), (first + second).norm().item())


def _outside(matrix: Tensor, blocks: list[Tensor]) -> float:
    inside, total = sum(block.square().sum().item() for block in blocks), matrix.square().sum().item()
    return max(0.0, 1 - inside / total) ** 0.5 if total else 0.0


def _explained(head: Head, group: Group, words: list[Word], layout: BlockLayout) -> float:
    alone = Group(group.roles, group.rule, head.Q[None], head.V[None])
    return weight_fit(alone, words, project(alone, words, layout), layout, list(layout.columns)).explained
