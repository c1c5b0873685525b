"""Which pictures of rank-limited heads hold, and the section of a rule's text that says so."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interp.unrolling.head_projection import HeadProjection
from interp.unrolling.projections import GroupProjection, Overlap, Projections, distinct_heads
from interp.unrolling.tables import ABSENT, line, wrapped

BOUND = 0.1
"""Relative residual up to which a picture describes a block."""
LEVEL = 0.01
"""Of the sketch test: a smaller p-value rejects a uniform frame. Of true sketches one test in a hundred is rejected."""
SAID_BY_WORDS = 0.9
"""Share of a layer's squared weights that words must explain to be a description of it."""
LISTED_HEADS = 8
"""Own heads of a group of which the text lists all; of more, which only a disguise has, it lists the canonical ones."""
LISTED_PAIRS = 24
"""Overlaps of which the text lists all; of more it gives the mean and the ends."""
LABEL, CELL = 26, 9
COLUMNS = ("ranks", "Q − cP", "p eig", "p entry", "b₁", "b₂", "V fit", "Q ∓ V")


@dataclass(frozen=True)
class Picture:
    """A picture, in how many of the heads or layers that it is about it holds, and the worst number.

    `bound` is what the numbers are compared with: residuals must not exceed it, p-values not fall below it.
    """

    name: str
    holds_in: int
    of: int
    unit: str
    worst: float
    bound: float

    @property
    def holds(self) -> bool:
        """In all of them, of which there is one at least."""
        return self.holds_in == self.of > 0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


HEAD_PICTURES: dict[str, Callable[[HeadProjection], float | None]] = {
    "Q is a multiple of a projection P": lambda head: head.qk.residual,
    "V = b₁P + b₂(I − P)": lambda head: head.levels_residual,
    "Q and V are equal up to sign and size": lambda head: head.difference,
}


def pictures(found: Projections) -> list[Picture]:
    """What holds of the model's own heads; pictures that are about nothing here are left out."""
    result = []
    for name, measure in HEAD_PICTURES.items():
        values = [value for head in found.own if (value := measure(head)) is not None]
        result.append(_residuals(name, values, "heads"))
    limited = [head for head in found.own if head.sketch is not None]
    tests = [min(head.sketch.eigenvalues_p, head.sketch.entries_p) for head in limited if head.sketch]
    passed = [p >= LEVEL and head.qk.residual <= BOUND for p, head in zip(tests, limited, strict=True)]
    worst = min(tests, default=1.0)
    result.append(Picture("Q is not told from a random sketch S Sᵀ", sum(passed), len(passed), "heads", worst, LEVEL))
    several = [group for group in found.groups if len(group.own) > 1 and group.sums]
    values = [max(residual for _, residual in group.sums.values()) for group in several]
    result.append(_residuals("heads of a layer are complementary: Σ vP = cI", values, "layers"))
    return [picture for picture in result if picture.of]


def _residuals(name: str, values: Sequence[float], unit: str) -> Picture:
    return Picture(name, sum(value <= BOUND for value in values), len(values), unit, max(values, default=0.0), BOUND)


def to_lines(found: Projections) -> list[str]:
    """The section of a rule's text."""
    return [
        "rank-limited heads: Q_xx, of unit size, and V_xx; P the projection nearest to a multiple of Q_xx",
        line("", COLUMNS, LABEL, CELL),
        *(text for group in found.groups for text in _table(group, found.width)),
        "  ranks of Q, V; p of eigenvalues and of entries if c S Sᵀ, S uniform, had the residual as noise;",
        "  V fit: residual of b₁P + b₂(I − P); Q ∓ V: difference of their shapes, up to sign",
        *_carried(found),
        "sum over heads: Σ_h v_h Q_h,xx against c·I, and what words explain of it (alone: of one head)",
        *(text for group in found.groups for text in _sum_lines(group)),
        *_overlap_lines(found),
        f"pictures: residuals at most {BOUND:g}, p at least {LEVEL:g}",
        *(_verdict(picture) for picture in pictures(found)),
    ]


def _table(group: GroupProjection, width: int) -> Iterator[str]:
    """The own heads and, where there are several, those of their sum; under whose rows they act on."""
    if group.label:
        yield f"  {group.label}:"
    own = group.own if len(group.own) <= LISTED_HEADS else ()
    for head in own:
        yield line(f"layer {group.layer} head {head.number}", _cells(head, width), LABEL, CELL)
    for head in group.canonical[:LISTED_HEADS] if len(own) != 1 else ():
        yield line(f"layer {group.layer} sum, part {head.number}", _cells(head, width), LABEL, CELL)


def _cells(head: HeadProjection, width: int) -> list[str]:
    ranks = f"{head.qk.rank}, {head.vp.rank if head.vp else ABSENT}"
    tests = (head.sketch.eigenvalues_p, head.sketch.entries_p) if head.sketch else (None, None)
    b1, b2 = head.levels or (None, None)
    b2 = None if head.qk.rank == width else b2
    numbers = (head.qk.residual, *tests, b1, b2, head.levels_residual, head.difference)
    return [ranks, *(ABSENT if value is None else _short(value) for value in numbers)]


def _short(value: float) -> str:
    """Three digits, or two where those would touch the next cell."""
    text = f"{value:.3g}"
    return text if len(text) < CELL else f"{value:.1e}"


def _carried(found: Projections) -> list[str]:
    """Where V of lower rank reads and writes, by layer.head."""
    heads = [(layer, head) for layer, head in distinct_heads(found.groups) if head.vp and head.vp.rank < found.width]
    parts = [f"{layer}.{head.number} {head.in_P[0]:.2f}, {head.in_P[1]:.2f}" for layer, head in heads if head.in_P]
    return wrapped("  V_xx reads, writes in P (share): ", parts) if 0 < len(parts) <= LISTED_PAIRS else []


def _sum_lines(group: GroupProjection) -> list[str]:
    where = f"  layer {group.layer}{f' ({group.label})' if group.label else ''}: "
    parts = [f"into {block}: {c:.4g}·I, off by {residual:.2g}" for block, (c, residual) in group.sums.items()]
    alone = max((head.explained for head in group.own), default=0.0)
    function = "" if group.function_explained is None else f", {group.function_explained:.4f} of the function"
    parts.append(f"words: {group.explained:.4f} of the weights{function} (alone {alone:.2f})")
    if group.explained < SAID_BY_WORDS:
        parts.append("no words: see its blocks")
    return wrapped(where, parts)


def _overlap_lines(found: Projections) -> list[str]:
    within = [overlap for overlap in found.overlaps if overlap.first[0] == overlap.second[0]]
    between = [overlap for overlap in found.overlaps if overlap.first[0] != overlap.second[0]]
    lines = []
    if found.own and all(len(group.own) <= LISTED_HEADS for group in found.groups):
        rank = sum(head.qk.rank for head in found.own) / len(found.own)
        lines.append(f"overlaps tr(P P')/rank of heads (layer.head), uniform frames have {rank / found.width:.2f}")
        for name, overlaps in (("within layers", within), ("layer to layer", between)):
            parts = [_overlap(entry) for entry in overlaps] if len(overlaps) <= LISTED_PAIRS else [_range(overlaps)]
            lines += wrapped(f"  {name:<15} ", parts) if parts else []
    return lines if len(lines) > 1 else []


def _range(overlaps: Sequence[Overlap]) -> str:
    shares = [abs(entry.share) for entry in overlaps]
    return f"{len(shares)} pairs from {min(shares):.2f} to {max(shares):.2f}, mean {sum(shares) / len(shares):.2f}"


def _overlap(entry: Overlap) -> str:
    """Which two heads, the share, and the angles."""
    (layer, head), (other, mate) = entry.first, entry.second
    return f"{layer}.{head} with {other}.{mate} {abs(entry.share):.2f} ({entry.angles[0]:.0f}°…{entry.angles[1]:.0f}°)"


def _verdict(picture: Picture) -> str:
    verdict = "holds" if picture.holds else "DOES NOT HOLD" if not picture.holds_in else "holds in part"
    count = f"{picture.holds_in} of {picture.of} {picture.unit}, worst {picture.worst:.2g}"
    return f"  {picture.name:<48}{verdict:<15}{count}"
