"""Every label column is a problem of its own: products and ratios a column."""

import torch
from torch import Tensor


def dot(left: Tensor, right: Tensor) -> Tensor:
    """[batch, 1, out]."""
    return (left * right).sum(-2, keepdim=True)


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """above / below, 0 where below is not positive: a column that has arrived stays where it is."""
    return torch.where(below > 0, above / torch.where(below > 0, below, 1), 0)


def rounding_floor(vector: Tensor) -> Tensor:
    """The square of what rounding leaves of a vector: below it a squared residual counts as 0."""
    return (10 * vector.shape[-2] * torch.finfo(vector.dtype).eps) ** 2 * dot(vector, vector)
