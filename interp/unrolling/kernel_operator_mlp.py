"""What an MLP computes of a row, found from its function: sums of columns, products of two, and reciprocals.

The function is evaluated where every column takes its own values in context rows, but independently of the others
(so that columns which the algorithm ties together come apart), and every written column is regressed on 1, u_a, u_a u_b
and 1/u_a of the columns that are read. Terms that contribute less than `SMALL` are dropped; what the others leave out
is stated. Rows marked by a flag are left out, and columns that do not vary count as 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout

SMALL = 1e-2  # rms of a term, relative to that of what is written
NAMED = 2e-2  # rms left out, relative, above which terms do not describe what is written
SAMPLES = 2048

Term = tuple[str, ...]
"""() is 1, (a,) is u_a, (a, b) their product, ("1/", a) the reciprocal."""


@dataclass(frozen=True)
class TokenTerms:
    """What an MLP adds to one column: Σ coefficient · term, and the rms that it leaves out, relative."""

    terms: dict[Term, float]
    residual: float

    @property
    def named(self) -> bool:
        return self.residual <= NAMED

    def __call__(self, columns: dict[str, Tensor]) -> Tensor:
        total = sum(value * evaluate(term, columns) for term, value in self.terms.items())
        return total if isinstance(total, Tensor) else torch.zeros_like(next(iter(columns.values())))

    def to_dict(self) -> dict[str, Any]:
        return {"terms": {label(term): value for term, value in self.terms.items()}, "left out": self.residual}


def label(term: Term) -> str:
    if not term:
        return "1"
    return f"1/{term[1]}" if term[0] == "1/" else " ⊙ ".join(term)


def evaluate(term: Term, columns: dict[str, Tensor]) -> Tensor:
    if not term:
        return torch.ones_like(next(iter(columns.values())))
    if term[0] == "1/":
        return 1 / columns[term[1]]
    return columns[term[0]] if len(term) == 1 else columns[term[0]] * columns[term[1]]


def read_mlp(
    function: Callable[[Tensor], Tensor], rows: Float[Tensor, "row D"], layout: BlockLayout, seed: int = 0
) -> dict[str, TokenTerms]:
    """By column, what the MLP writes to it.

    Args:
        function: rows of block coordinates [row, D] to what is added to them.
        rows: those of the prompts before the MLP.
    """
    shuffled = _independent(rows, torch.Generator().manual_seed(seed))
    written = function(shuffled)
    read = _columns_read(function, shuffled, layout)
    singles = {name: shuffled[:, layout.slices[name].start] for name in read}
    terms = _dictionary(singles)
    size = written.abs().amax()
    return {
        name: _fit(terms, written[:, at.start], singles)
        for name, at in layout.slices.items()
        if at.stop - at.start == 1 and written[:, at].abs().amax() > 1e-9 * size
    }


def _independent(rows: Tensor, generator: torch.Generator) -> Tensor:
    """`SAMPLES` rows, each column drawn by itself."""
    index = torch.randint(len(rows), (SAMPLES, rows.shape[1]), generator=generator)
    return rows.gather(0, index)


def _columns_read(function: Callable[[Tensor], Tensor], rows: Tensor, layout: BlockLayout) -> list[str]:
    """The columns of width 1 on which the function depends: those whose permutation changes it."""
    before, read = function(rows), []
    for name, at in layout.slices.items():
        if at.stop - at.start == 1 and rows[:, at].std() > 0:
            moved = rows.clone()
            moved[:, at] = rows[:, at].flip(0)
            if (function(moved) - before).abs().max() > 1e-9 * before.abs().max():
                read.append(name)
    return read


def _dictionary(columns: dict[str, Tensor]) -> list[Term]:
    names = list(columns)
    inverses: list[Term] = [("1/", name) for name in names if columns[name].min() > 1e-3 * columns[name].max() > 0]
    return [(), *((name,) for name in names), *combinations_with_replacement(names, 2), *inverses]


def _fit(terms: list[Term], target: Tensor, columns: dict[str, Tensor]) -> TokenTerms:
    """Least squares on all terms, then again and again without the smallest until none is small."""
    size, kept = target.square().mean().sqrt(), list(terms) if columns else []
    while kept:
        design = torch.stack([evaluate(term, columns) for term in kept], dim=1)
        scale = design.square().mean(0).sqrt().clamp(min=torch.finfo(design.dtype).tiny)
        solution = torch.linalg.lstsq(design / scale, target[:, None]).solution[:, 0]
        smallest = int(solution.abs().argmin())
        if solution[smallest].abs() > SMALL * size:
            residual = (target - design @ (solution / scale)).square().mean().sqrt() / size
            values = (solution / scale).tolist()
            return TokenTerms(dict(zip(kept, values, strict=True)), residual.item())
        kept.pop(smallest)
    return TokenTerms({}, 1.0)
