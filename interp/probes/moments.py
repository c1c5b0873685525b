"""Centred second moments of features and targets, accumulated batch by batch: all that a ridge probe needs."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass
class Moments:
    """Count, means and centred moments of rows (x, y), merged pairwise so that no large mean cancels.

        gram = Σ (x − x̄)(x − x̄)ᵀ     cross = Σ (x − x̄)(y − ȳ)ᵀ     spread = Σ (y − ȳ)², a column each

    Its size depends on the widths of x and y alone, not on how many rows were seen. Source: Chan, Golub, LeVeque 1979,
    "Updating formulae and a pairwise algorithm for computing sample variances".
    """

    count: int
    x_mean: Float[Tensor, "feature"]
    y_mean: Float[Tensor, "column"]
    gram: Float[Tensor, "feature feature"]
    cross: Float[Tensor, "feature column"]
    spread: Float[Tensor, "column"]

    @classmethod
    def empty(cls, features: int, columns: int, device: torch.device | str = "cpu") -> "Moments":
        """No rows yet, in float64."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        return cls(
            0, zeros(features), zeros(columns), zeros(features, features), zeros(features, columns), zeros(columns)
        )

    @classmethod
    def of(cls, x: Float[Tensor, "row feature"], y: Float[Tensor, "row column"]) -> "Moments":
        """The moments of these rows."""
        return cls.empty(x.shape[1], y.shape[1], x.device).update(x, y)

    def update(self, x: Float[Tensor, "row feature"], y: Float[Tensor, "row column"]) -> "Moments":
        """Take in more rows; returns self.

        Raises:
            ValueError: the widths are not those of the rows seen before, or x and y differ in rows.
        """
        expected = (len(x), *self.cross.shape)
        if (len(y), x.shape[1], y.shape[1]) != expected:
            raise ValueError(
                f"Moments.update: x {list(x.shape)} and y {list(y.shape)} do not fit {self.cross.shape[0]} features "
                f"and {self.cross.shape[1]} target columns; give as many rows of each, of those widths"
            )
        if not len(x):
            return self
        x, y = x.double(), y.double()
        mean_x, mean_y = x.mean(0), y.mean(0)
        shift_x, shift_y = mean_x - self.x_mean, mean_y - self.y_mean
        total = self.count + len(x)
        between = self.count * len(x) / total
        x, y = x - mean_x, y - mean_y
        self.gram.addmm_(x.T, x).addr_(shift_x, shift_x, alpha=between)
        self.cross.addmm_(x.T, y).addr_(shift_x, shift_y, alpha=between)
        self.spread += y.square().sum(0) + between * shift_y.square()
        self.x_mean += shift_x * (len(x) / total)
        self.y_mean += shift_y * (len(x) / total)
        self.count = total
        return self

    def columns(self, chosen: slice) -> "Moments":
        """The moments of some of the target columns; the Gram matrix is shared, not copied."""
        return Moments(
            self.count, self.x_mean, self.y_mean[chosen], self.gram, self.cross[:, chosen], self.spread[chosen]
        )
