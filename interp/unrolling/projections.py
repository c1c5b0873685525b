"""Rank-limited heads: the x blocks of every head as projections, their overlaps, and their sum.

A head of rank r < d reads the inputs through Q_xx = W_Q W_Kᵀ of rank r, which no word describes: words commute with the
rotations of x, a projection does not. Only a sum over heads can. So there are two levels here: the model's own heads,
by the products Q and V that no gauge changes, and the canonical heads of their sum, which words are fitted to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from interp.unrolling.head_projection import (
    VANISHES,
    Head,
    HeadProjection,
    describe_head,
    numerical_rank,
    reading_heads,
    scalar,
)
from interp.unrolling.rule import GroupRule, UpdateRule, symbol_of
from interp.unrolling.sketch import DRAWS
from interp.unrolling.spectral import input_block


@dataclass(frozen=True, eq=False)
class GroupProjection:
    """The heads of one layer that act on the same rows.

    Args:
        label: whose rows, "" where the layer has one group.
        own, canonical: the model's own heads, and those of their sum; both without idle heads and heads that read no x.
        sums: by block, (c, ‖M − c I‖ / ‖M‖) of M = Σ_h v_h Q_h,xx over the own heads, v_h the mean of the diagonal of
            V_h at that block: 0 where the heads' projections are complementary. A sum that vanishes is left out.
        explained: share of the sum over heads that words explain, of the weights, and of the layer's function if known.
    """

    layer: int
    label: str
    own: tuple[HeadProjection, ...]
    canonical: tuple[HeadProjection, ...]
    sums: dict[str, tuple[float, float]]
    explained: float
    function_explained: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "group": self.label,
            "own": [head.to_dict() for head in self.own],
            "canonical": [head.to_dict() for head in self.canonical],
            "sums": {block: list(value) for block, value in self.sums.items()},
            "explained": {"weights": self.explained, "function": self.function_explained},
        }


@dataclass(frozen=True)
class Overlap:
    """tr(P P') / min rank of two own heads' projections, and the smallest and largest principal angle in degrees.

    `first` and `second` are (layer, head). Uniform frames of rank r have r/d on average.
    """

    first: tuple[int, int]
    second: tuple[int, int]
    share: float
    angles: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        return {"heads": [list(self.first), list(self.second)], "share": self.share, "angles": list(self.angles)}


@dataclass(frozen=True)
class Projections:
    """The heads of a rule as projections.

    Args:
        width: d, the number of input columns.
        groups: in the order of the layers.
        overlaps: of the own heads of each layer, and of those of a layer and the next.
    """

    width: int
    groups: tuple[GroupProjection, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def own(self) -> list[HeadProjection]:
        """The model's own heads, each once; where two groups share it, as it is in one whose V_xx is read."""
        return [head for _, head in distinct_heads(self.groups)]

    @property
    def rank_limited(self) -> bool:
        """Has an own head a Q_xx of rank below d."""
        return any(head.qk.rank < self.width for head in self.own)

    def to_dict(self) -> dict[str, Any]:
        from interp.unrolling.pictures import pictures

        return {
            "width": self.width,
            "rank_limited": self.rank_limited,
            "groups": [group.to_dict() for group in self.groups],
            "overlaps": [overlap.to_dict() for overlap in self.overlaps],
            "pictures": [picture.to_dict() for picture in pictures(self)],
        }

    def __str__(self) -> str:
        from interp.unrolling.pictures import to_lines

        return "\n".join(to_lines(self))


def projections(rule: UpdateRule, draws: int = DRAWS, seed: int = 0) -> Projections:
    """The x blocks of every head of a rule, of the model's own and of their canonical sum.

    Args:
        draws: matrices for the null of the sketch test; see `interp.unrolling.sketch.SketchTest`.
        seed: of those matrices.

    Raises:
        ValueError: the layout has no block of inputs, or `draws` are too few.
    """
    if draws < 4:
        raise ValueError(f"projections: draws={draws} must be at least 4; 400 resolve p-values of 0.005")
    x = rule.layout.slices[input_block(rule.layout)]
    groups = tuple(
        _group(rule, index, item, x, draws, seed)
        for index, layer in enumerate(rule.layers)
        for item in layer.groups
        if any(layer.live[role] for role in item.group.roles)
    )
    return Projections(x.stop - x.start, groups, tuple(_overlaps(groups)))


def is_rank_limited(rule: UpdateRule) -> bool:
    """Has a head of the model that reads the inputs a Q_xx of numerical rank below d."""
    try:
        x = rule.layout.slices[input_block(rule.layout)]
    except ValueError:
        return False
    heads = [head for layer in rule.layers for item in layer.groups for head in _own(rule, item, x)]
    return any(numerical_rank(head.Q[x, x]) < x.stop - x.start for head in heads)


def _group(rule: UpdateRule, index: int, item: GroupRule, x: slice, draws: int, seed: int) -> GroupProjection:
    layer, group = rule.layers[index], item.group
    own = _own(rule, item, x)
    heads = {"own": own, "canonical": reading_heads(group.Q, group.V, x, _unread(rule, item))}
    described = {
        name: tuple(describe_head(head, group, item.projected, rule.layout, x, draws, seed) for head in found)
        for name, found in heads.items()
    }
    function = rule.function.explained["words"][index] if rule.function else None
    several = f"{'+'.join(group.roles)}, {symbol_of(group.rule)}" if len(layer.groups) > 1 else ""
    sums = _sums(rule, item, own, x)
    return GroupProjection(
        index, several, **described, sums=sums, explained=item.fit.explained, function_explained=function
    )


def _own(rule: UpdateRule, item: GroupRule, x: slice) -> list[Head]:
    """The model's own heads of a group; the canonical ones where it was not extracted from a model."""
    heads = reading_heads(*(item.group.own or (item.group.Q, item.group.V)), x, _unread(rule, item))
    numbers = item.group.members
    return [replace(head, number=numbers[head.number]) for head in heads] if numbers else heads


def _unread(rule: UpdateRule, item: GroupRule) -> list[int]:
    """Columns of V that nothing reads."""
    at = rule.layout.slices
    return [column for name in item.unread for column in range(at[name].start, at[name].stop)]


def _sums(rule: UpdateRule, item: GroupRule, heads: Sequence[Head], x: slice) -> dict[str, tuple[float, float]]:
    sums, inputs = {}, input_block(rule.layout)
    for name in (inputs, rule.layout.readout):
        at = rule.layout.slices[name]
        parts = [head.V[at, at].diagonal().mean() * head.Q[x, x] for head in heads]
        if name in item.unread or not parts:
            continue
        total, terms = torch.stack(parts).sum(0), sum(head.V.norm() * head.Q.norm() for head in heads)
        if total.norm() > VANISHES * terms:
            sums[name] = scalar(total)
    return sums


def distinct_heads(groups: Sequence[GroupProjection]) -> list[tuple[int, HeadProjection]]:
    """Layer and head, each own head once."""
    found: dict[tuple[int, int], HeadProjection] = {}
    for group in groups:
        for head in group.own:
            known = found.get((group.layer, head.number))
            if known is None or known.vp is None:
                found[group.layer, head.number] = head
    return [(layer, head) for (layer, _), head in found.items()]


def _overlaps(groups: Sequence[GroupProjection]) -> Iterator[Overlap]:
    for first, second in combinations(distinct_heads(groups), 2):
        if second[0] <= first[0] + 1:
            yield _overlap(first, second)


def _overlap(first: tuple[int, HeadProjection], second: tuple[int, HeadProjection]) -> Overlap:
    """cos of the principal angles are the singular values of P P'."""
    (layer, head), (other, mate) = first, second
    rank = min(head.qk.rank, mate.qk.rank)
    cosines = torch.linalg.svdvals(head.qk.P @ mate.qk.P)[:rank].clamp(max=1.0)
    angles = torch.rad2deg(torch.acos(cosines))
    share = (head.qk.P * mate.qk.P).sum().item() / rank
    return Overlap((layer, head.number), (other, mate.number), share, (angles[0].item(), angles[-1].item()))
