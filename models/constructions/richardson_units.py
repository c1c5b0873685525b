"""ReLU units that compute products, reciprocals and linear maps of single columns: tables of hinges.

A square is interpolated with m segments on [−1, 1], knots t_j = 2j/m, in symmetric hinges

    t² ≈ Σ_j c_j [relu(t − t_j) + relu(−t − t_j)],    c_0 = 2/m, c_j = 4/m,    0 ≤ error ≤ 1/m²

whose terms are all positive, so that rounding costs one unit in the last place of t² and not of m/2 cancelling slopes.
A product is a difference of two squares, uv = UV[((u/U + v/V)/2)² − ((u/U − v/V)/2)²], off by at most UV/m².
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout

Columns = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Units:
    """Hidden units of an MLP: relu(z W_in + b_in) W_out, and what is added to the output, b_out."""

    W_in: Float[Tensor, "d_model unit"]
    b_in: Float[Tensor, "unit"]
    W_out: Float[Tensor, "unit d_model"]
    b_out: Float[Tensor, "d_model"]

    @property
    def width(self) -> int:
        return len(self.b_in)


def units(layout: BlockLayout, rows: Sequence[tuple[Columns, float, Columns]], offset: Columns | None = None) -> Units:
    """One hidden unit a row: (columns read, bias, columns written)."""
    read = torch.stack([vector(layout, columns) for columns, _, _ in rows], dim=1)
    bias = torch.tensor([bias for _, bias, _ in rows], dtype=torch.float64)
    write = torch.stack([vector(layout, columns) for _, _, columns in rows])
    return Units(read, bias, write, vector(layout, offset or {}))


def vector(layout: BlockLayout, columns: Columns) -> Float[Tensor, "d_model"]:
    """Σ coefficient · unit vector of a block of one column."""
    row = torch.zeros(layout.d_model, dtype=torch.float64)
    for name, coefficient in columns.items():
        row[layout.slices[name].start] += coefficient
    return row


def linear(layout: BlockLayout, read: Columns, write: Columns) -> Units:
    """write += read, exactly: t = relu(t) − relu(−t)."""
    rows = [({name: sign * c for name, c in read.items()}, 0.0, _times(write, sign)) for sign in (1.0, -1.0)]
    return units(layout, rows)


def product(layout: BlockLayout, u: tuple[str, float], v: tuple[str, float], write: Columns, m: int) -> Units:
    """write += u·v for |u| ≤ U and |v| ≤ V; u = (column, U), v = (column, V). 2m hidden units."""
    (left, U), (right, V) = u, v
    rows = []
    for sign in (1.0, -1.0):
        half = {left: 0.5 / U, right: sign * 0.5 / V}
        for knot, slope in squares(m):
            written = _times(write, sign * U * V * slope)
            rows += [(half, -knot, written), (_times(half, -1.0), -knot, written)]
    return units(layout, rows)


def squares(m: int) -> list[tuple[float, float]]:
    """(t_j, c_j) of t² with m segments on [−1, 1], m even."""
    return [(2 * j / m, (4 if j else 2) / m) for j in range(m // 2)]


def reciprocal(layout: BlockLayout, p: tuple[str, float], numerator: float, into: str, m: int) -> Units:
    """into += numerator/p for low ≤ p ≤ 1, p = (column, low), on m geometric segments from 1 down to low.

    All terms are positive. The relative error is at most log²(1/low) / 4m².
    """
    column, low = p
    knots = low ** (torch.arange(m + 1, dtype=torch.float64) / m)
    slopes = numerator / (knots[:-1] * knots[1:])
    steps = slopes.diff(prepend=torch.zeros(1, dtype=torch.float64))
    rows = [({column: -1.0}, knot, {into: step}) for knot, step in zip(knots.tolist(), steps.tolist(), strict=False)]
    return units(layout, rows, {into: numerator})


def together(parts: Sequence[Units]) -> Units:
    """Side by side in one MLP."""
    return Units(
        torch.cat([part.W_in for part in parts], dim=1),
        torch.cat([part.b_in for part in parts]),
        torch.cat([part.W_out for part in parts]),
        torch.stack([part.b_out for part in parts]).sum(0),
    )


def padded(part: Units, width: int) -> Units:
    """With idle units, so that every MLP of a model is as wide as its widest."""
    more = width - part.width
    W_in, b_in = torch.nn.functional.pad(part.W_in, (0, more)), torch.nn.functional.pad(part.b_in, (0, more))
    return Units(W_in, b_in, torch.nn.functional.pad(part.W_out, (0, 0, 0, more)), part.b_out)


def _times(columns: Columns, factor: float) -> dict[str, float]:
    return {name: factor * value for name, value in columns.items()}
