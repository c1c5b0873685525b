"""Heads of softmax attention in words: which similarity of rows, and which columns they move where.

In block coordinates u the score of row i with row k is u_i M u_kᵀ. Where the layout names the columns, M is read as

    a Gaussian of the inputs    x·x'/h² with −‖x_i‖²/2h² and −‖x_k‖²/2h² through a column that holds ‖x‖²
    a constant score log μ      for a row marked by a flag (a first token, BOS, whose value is 0)

so that softmax gives P⁻¹K over the points, K = exp(−‖x_i − x_k‖²/2h²), P = D + μI, and p = μ/(D + μ) for the flag
(MATH §6). Anything else stays the bilinear form that it is.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.layout import BlockLayout
from interp.unrolling.blocks import BlockClass, describe_block

TOLERANCE = 1e-3  # of a score's words, relative to 1/h²
ALONE = 30.0  # a score with itself that leaves e⁻³⁰ for all others


@dataclass(frozen=True)
class Columns:
    """Columns of a meaning that was found in the prompts: ‖x‖², 1 in every row, 1 in marked rows and 0 elsewhere."""

    norm: str | None
    constant: str | None
    flag: str | None


@dataclass(frozen=True, eq=False)
class KernelHead:
    """One head.

    Args:
        M, V: scores u_i M u_kᵀ and written values u_k V, in block coordinates.
        similarity: the class of M between the inputs.
        bandwidth: h, where scores are those of a Gaussian; None otherwise.
        shift: μ, of the row marked by the flag; None where there is no such row.
        residual: what the words leave out of M, relative.
        moved: the class of V from block to block, without those that are 0.
    """

    M: Float[Tensor, "D D"] = field(repr=False)
    V: Float[Tensor, "D D"] = field(repr=False)
    similarity: BlockClass
    bandwidth: float | None
    shift: float | None
    residual: float
    moved: dict[tuple[str, str], BlockClass]
    columns: Columns

    @property
    def coefficients(self) -> dict[tuple[str, str], float]:
        """(from, into): c, where the block is c·I."""
        return {key: found.numbers["c"] for key, found in self.moved.items() if found.name == "identity"}

    def scores(self, u: Float[Tensor, "batch row D"], layout: BlockLayout) -> Float[Tensor, "batch row row"]:
        """The scores in words where there are words, else in the matrix."""
        if self.bandwidth is None:
            return u @ self.M.to(u) @ u.mT
        x = u[..., layout.slices["x"]]
        scores = Covariance("rbf", self.bandwidth)(x, x).log()
        if self.columns.flag is None or self.shift is None:
            return scores
        marked = u[..., layout.slices[self.columns.flag]].squeeze(-1) > 0.5
        scores = torch.where(marked[:, None, :], math.log(self.shift), scores)
        alone = marked[:, :, None] & ~torch.eye(u.shape[1], dtype=torch.bool)
        return torch.where(alone, -torch.inf, scores)

    def to_dict(self) -> dict[str, Any]:
        return {
            "similarity of x": str(self.similarity),
            "bandwidth": self.bandwidth,
            "shift": self.shift,
            "left out": self.residual,
            "moved": {f"{source} → {into}": str(found) for (source, into), found in self.moved.items()},
        }


def find_columns(u: Float[Tensor, "batch row D"], layout: BlockLayout) -> Columns:
    """What the columns of width 1 hold in the prompts, to 1e-6."""
    single = {name: u[..., at].squeeze(-1) for name, at in layout.slices.items() if at.stop - at.start == 1}
    squared = u[..., layout.slices["x"]].square().sum(-1)

    def first(holds: Any) -> str | None:
        return next((name for name, column in single.items() if name != "x" and holds(column)), None)

    return Columns(
        norm=first(lambda column: torch.allclose(column, squared, atol=1e-6)),
        constant=first(lambda column: torch.allclose(column, torch.ones_like(column))),
        flag=first(_marks),
    )


def _marks(column: Tensor) -> bool:
    """1 in fewer than half of the rows, 0 in the others."""
    rounded = column.round()
    binary = torch.allclose(column, rounded, atol=1e-6) and bool(((rounded == 0) | (rounded == 1)).all())
    return binary and 0 < rounded.mean().item() < 0.5


def read_head(
    M: Float[Tensor, "D D"], V: Float[Tensor, "D D"], layout: BlockLayout, columns: Columns | None
) -> KernelHead:
    """The head in words; without prompts the columns are unknown, and M stays a matrix."""
    at = layout.slices
    similarity = describe_block(M[at["x"], at["x"]], TOLERANCE) if "x" in at else describe_block(M)
    columns = columns or Columns(None, None, None)
    bandwidth, shift, residual = _gaussian(M, layout, columns, similarity)
    size = V.abs().max().item()
    moved = {
        (source, into): found
        for source in layout.columns
        for into in layout.columns
        if (found := describe_block(V[at[source], at[into]], 1e-2 if size else 0.0)).name != "zero"
        and V[at[source], at[into]].abs().max() > 1e-6 * size
    }
    return KernelHead(M, V, similarity, bandwidth, shift, residual, moved, columns)


def _gaussian(
    M: Tensor, layout: BlockLayout, columns: Columns, similarity: BlockClass
) -> tuple[float | None, float | None, float]:
    """h, μ and what they leave out, or nothing where the scores are no Gaussian's."""
    c = similarity.numbers.get("c", 0.0) if similarity.name == "identity" else 0.0
    if c <= 0 or columns.norm is None or columns.constant is None:
        return None, None, 0.0
    marked = _flag_scores(M, layout, columns)
    expected = _words(layout, columns, c, marked)
    gap = (M - expected).abs().amax().item() / c
    sees_others = marked is not None and marked[1] < ALONE
    if gap > TOLERANCE or sees_others:
        return None, None, gap
    return c**-0.5, None if marked is None else math.exp(marked[0]), gap


def _flag_scores(M: Tensor, layout: BlockLayout, columns: Columns) -> tuple[float, float] | None:
    """log μ for every row, and the score of the marked row with itself."""
    if columns.flag is None or columns.constant is None:
        return None
    flag, constant = layout.slices[columns.flag].start, layout.slices[columns.constant].start
    return M[constant, flag].item(), M[flag, flag].item()


def _words(layout: BlockLayout, columns: Columns, c: float, marked: tuple[float, float] | None) -> Tensor:
    """M of a Gaussian of bandwidth c^-½, with the flag's scores."""
    at, expected = layout.slices, torch.zeros(layout.d_model, layout.d_model, dtype=torch.float64)
    assert columns.norm is not None and columns.constant is not None
    norm, constant = at[columns.norm].start, at[columns.constant].start
    expected[at["x"], at["x"]] = c * torch.eye(layout.widths["x"], dtype=torch.float64)
    expected[norm, constant] = expected[constant, norm] = -c / 2
    if columns.flag is not None and marked is not None:
        flag = at[columns.flag].start
        expected[norm, flag], expected[constant, flag], expected[flag, flag] = c / 2, *marked
    return expected
