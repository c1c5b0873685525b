"""What each block of a linear-attention rule adds to the prediction, exactly, and which share of it that is.

Per layer, with a the row's own block and {b, c} the blocks of the second moment it meets,

    term(a; b, c) = z_a (Q_ab S_bc V_c + Q_ac S_cb V_b)      (once where b = c)        into the read-out block

on the rule's own exact states. With what is read out of the input, the terms of all layers sum to the prediction. A
share is a part of the prediction's variance over prompts, cov(term, prediction) / var(prediction): shares sum to 1,
a constant has share 0, and terms that cancel have shares above 1 and below 0, which their sizes show. Beside each: the
share of its words alone, whose matrices are multiples of the identity.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.unrolling.circuits import Group
from interp.unrolling.moments import check_prompts, second_moments
from interp.unrolling.rule import GroupRule, UpdateRule, WordFeatures

INPUT = "read-out of the input"
CHUNK = 8192  # prompts at a time


@dataclass(frozen=True)
class Term:
    """One term: where it is read from, its share of the prediction's variance, its size and its mean.

    Args:
        layer: None for what is read out of the input.
        row, moment: the row's own block, and the two blocks of the second moment, in the layout's order.
        share: of the variance of the prediction. `word_share`: that of the term's words alone.
        rms: root mean square over prompts. `mean`: over prompts, and over the columns of the answer.
    """

    layer: int | None
    row: str
    moment: tuple[str, str] | None
    share: float
    word_share: float
    rms: float
    mean: float

    @property
    def blocks(self) -> frozenset[str]:
        """The blocks it reads."""
        return frozenset((self.row, *(self.moment or ())))

    def __str__(self) -> str:
        if self.moment is None:
            return INPUT
        left, right = self.moment
        comma = "" if len(left) == len(right) == 1 else ","
        return f"z_{self.row} S_{left}{comma}{right}"


@dataclass(frozen=True)
class Terms:
    """The terms of a rule on given prompts, largest share first."""

    terms: tuple[Term, ...]
    prompts: int
    variance: float

    def share(self, *, row: str, moment: tuple[str, str]) -> float:
        """The share of one term, over all layers."""
        return sum(term.share for term in self.terms if term.row == row and set(term.moment or ()) == set(moment))

    def reading(self, blocks: frozenset[str] | set[str]) -> float:
        """The share of all terms that read at least one of these blocks."""
        return sum(term.share for term in self.terms if term.blocks & blocks)

    def to_dict(self) -> dict[str, Any]:
        named = [{"term": str(term), **asdict(term)} for term in self.terms]
        return {"prompts": self.prompts, "variance": self.variance, "terms": named}

    def table(self, least: float = 0.005) -> str:
        """Terms of at least this share, in size; the others in one line."""
        shown = [term for term in self.terms if abs(term.share) >= least]
        others = [term for term in self.terms if abs(term.share) < least]
        several = len({term.layer for term in self.terms}) > 2
        lines = [f"  {'term':<34}{'share':>10}{'by words':>10}{'rms':>10}{'mean':>10}"]
        for term in shown:
            label = f"layer {term.layer}: {term}" if several and term.layer is not None else str(term)
            cells = f"{term.share:>10.4f}{term.word_share:>10.4f}{term.rms:>10.3g}{term.mean:>10.3g}"
            lines.append(f"  {label:<34}{cells}")
        if others:
            label, share = f"{len(others)} others, each below {least:g}", sum(term.share for term in others)
            words, mean = (sum(getattr(term, name) for term in others) for name in ("word_share", "mean"))
            lines.append(f"  {label:<34}{share:>10.4f}{words:>10.4f}{'':>10}{mean:>10.3g}")
        total, mean = (sum(getattr(term, name) for term in self.terms) for name in ("share", "mean"))
        words = sum(term.word_share for term in self.terms)
        return "\n".join([*lines, f"  {'all':<34}{total:>10.4f}{words:>10.4f}{'':>10}{mean:>10.3g}"])


Key = tuple[int | None, str, tuple[str, str] | None]
Answer = Float[Tensor, "batch query out"]
Parts = dict[Key, tuple[Answer, Answer]]  # the term, and the part of it that its words say


def terms_of(rule: UpdateRule, prompts: Any) -> Terms:
    """The terms of a rule's prediction on prompts, exact.

    Args:
        rule: of linear attention, at its exact level.
        prompts: tokens [batch, token, d_model], or a value with such `.tokens`.

    Raises:
        ValueError: prompts that do not fit, or that all get one prediction.
    """
    tokens = check_prompts(prompts, rule.layout)
    by_chunk = [_parts(rule, some) for some in tokens.split(CHUNK)]
    parts = {key: tuple(torch.cat([chunk[key][i] for chunk in by_chunk]) for i in (0, 1)) for key in by_chunk[0]}
    prediction = sum((term for term, _ in parts.values()), torch.zeros(()).to(tokens))
    moved = prediction - prediction.mean(0)
    variance = moved.square().mean().item()
    if not variance > 0:
        raise ValueError("terms_of: the prediction is the same on every prompt, so nothing has a share of its variance")
    found = [
        Term(
            *key,
            share=(term * moved).mean().item() / variance,
            word_share=(words * moved).mean().item() / variance,
            rms=term.square().mean().sqrt().item(),
            mean=term.mean().item(),
        )
        for key, (term, words) in parts.items()
    ]
    return Terms(tuple(sorted(found, key=lambda term: -abs(term.share))), len(tokens), variance)


def _parts(rule: UpdateRule, tokens: Float[Tensor, "batch token d_model"]) -> Parts:
    """All terms of the prediction of these prompts."""
    states = list(rule.states(tokens, "exact"))
    start = rule.read(states[0])
    parts: Parts = {(None, rule.layout.readout, None): (start, start)}
    for layer, z in enumerate(states[:-1]):
        for item in rule.layers[layer].groups:
            if "query" in item.group.roles:
                for row, moment, term, words in _of_group(rule, item, z):
                    key = (layer, row, moment)
                    before = parts.get(key, (torch.zeros_like(start), torch.zeros_like(start)))
                    parts[key] = (before[0] + term, before[1] + words)
    return parts


def _of_group(
    rule: UpdateRule, item: GroupRule, z: Float[Tensor, "batch token D"]
) -> Iterator[tuple[str, tuple[str, str], Answer, Answer]]:
    """The row's block, the two blocks of the moment, the term, and the part of it that words say."""
    layout, out = rule.layout, rule.layout.slices[rule.layout.readout]
    scale = layout.sign / (layout.n_context(z.shape[1]) if rule.per_n else 1)
    rows = z[:, layout.rows("query", z.shape[1])]
    S = second_moments(z, layout, item.group.rule, "query")
    features = WordFeatures(rows, S, layout)
    for row in layout.columns:
        for moment in combinations_with_replacement(layout.columns, 2):
            term = _term(item.group, rows, S, layout, row, moment)
            if term is not None:
                words = [
                    coefficient * features[word]
                    for word, coefficient in item.projected.items()
                    if (word.into, word.row, {word.left, word.right}) == (layout.readout, row, set(moment))
                ]
                yield row, moment, scale * term[..., out], scale * sum(words, torch.zeros_like(term[..., out]))


def _term(
    group: Group, rows: Tensor, S: Tensor, layout: BlockLayout, row: str, moment: tuple[str, str]
) -> Float[Tensor, "batch query D"] | None:
    """The update by one term, or None where the weights have none."""
    at, total = layout.slices, None
    for b, c in {moment, moment[::-1]}:
        Q, V = group.Q[:, at[row], at[b]].to(rows), group.V[:, at[c]].to(rows)
        if Q.any() and V[..., at[layout.readout]].any():
            met = torch.einsum("bra,hac->hbrc", rows[..., at[row]], Q)
            seen = (met.unsqueeze(-2) @ S[..., at[b], at[c]]).squeeze(-2) @ V[:, None]
            total = seen.sum(0) if total is None else total + seen.sum(0)
    return total
