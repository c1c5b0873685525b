"""Powers of two that keep numbers near 1, so that no square overflows or underflows; division by them is exact."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def unit_of(matrix: Float[Tensor, "*batch row column"]) -> Float[Tensor, "*batch 1 1"]:
    """The power of two at or below the largest entry of each matrix; 1 for a matrix of zeros."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    mantissa = torch.frexp(largest).mantissa
    return torch.where(largest > 0, largest / torch.where(largest > 0, 2 * mantissa, 1), 1)


def rescaled(state: dict[str, Any], with_rows: str = "B") -> dict[str, Any]:
    """The state with A in units of its size, and with it another block, which leaves w as it is.

    That is B where all rows see the same context (a layer multiplies B and A alike, and D moves by B Aᵀ C/ν²), and on
    machines C. "scale" is A's unit in all: A · scale is the A of the formulas.
    """
    unit = unit_of(state["A"])
    return {
        **state,
        "A": state["A"] / unit,
        with_rows: state[with_rows] / unit,
        "scale": state["scale"] * unit,
    }
