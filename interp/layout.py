"""BlockLayout: what the columns and the rows of a prompt mean.

A prompt is a matrix, one token a row. Its columns fall into blocks (x, y, constant, position, ...), each given as a
basis of the residual stream; its last `n_query` rows are queries, the others context. The layout also says who may
attend to whom and how the prediction is read. Models and analyses share this vocabulary and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

ROLES = ("context", "query")
RULES = {
    "none": "no row",
    "context": "all context rows",
    "machine": "the context rows of its own machine",
    "context_and_self": "all context rows and itself",
    "causal": "itself and every row before it",
    "all": "every row",
}


@dataclass(frozen=True)
class Visibility:
    """Which rows a context row and a query row see, by the names in `RULES`.

    A head that only queries use is `Visibility(context="none", query="context")`.
    """

    context: str = "context"
    query: str = "context"

    def __post_init__(self) -> None:
        for role in ROLES:
            if self.of(role) not in RULES:
                raise ValueError(f"Visibility: unknown rule {self.of(role)!r}; known rules: {', '.join(RULES)}")
        if self.query == "machine":
            raise ValueError("Visibility: query rows belong to no machine; give them 'context', 'all' or 'none'")

    def of(self, role: str) -> str:
        return getattr(self, role)


@dataclass(frozen=True)
class BlockLayout:
    """The meaning of a prompt's columns and rows.

    Args:
        columns: for each column block its basis [d_model, width]. Together the bases are invertible:
            a residual row is z = Σ u_block @ basis_blockᵀ, and u = `coordinates(z)`.
        n_query: how many of the last rows are queries. The number of context rows follows from the prompt.
        visibility: one rule for all heads, or one a head.
        machines: the context rows are split evenly, in order, over this many machines.
        readout: the block in which the model answers, on the query rows.
        sign: the prediction is sign * that block (EAGLE models end at D → -B A⁺ C, so theirs is -1).
    """

    columns: Mapping[str, Float[Tensor, "d_model width"]]
    n_query: int = 1
    visibility: Visibility | Sequence[Visibility] = field(default_factory=Visibility)
    machines: int = 1
    readout: str = "y"
    sign: float = 1.0

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("BlockLayout: no column blocks given; give at least x and y, each [d_model, width]")
        if self.readout not in self.columns:
            raise ValueError(f"BlockLayout: the read-out block {self.readout!r} is not one of {list(self.columns)}")
        if self.n_query < 1 or self.machines < 1:
            raise ValueError(f"BlockLayout: n_query={self.n_query} and machines={self.machines} must be at least 1")
        heights = {name: tuple(basis.shape) for name, basis in self.columns.items()}
        if any(len(shape) != 2 for shape in heights.values()) or len({shape[0] for shape in heights.values()}) != 1:
            raise ValueError(f"BlockLayout: every basis must be [d_model, width] with one d_model, got {heights}")
        d_model, width = self.d_model, sum(self.widths.values())
        if width != d_model or torch.linalg.matrix_rank(self.basis.double()) < d_model:
            raise ValueError(
                f"BlockLayout: the blocks {self.widths} do not cover the {d_model} columns of the residual stream "
                "exactly once; name the remaining directions as a block of their own"
            )

    @classmethod
    def standard(cls, **options: Any) -> "BlockLayout":
        """Blocks as consecutive columns: `BlockLayout.standard(x=10, y=5, n_query=5, sign=-1)`."""
        own = {"n_query", "visibility", "machines", "readout", "sign"}
        widths = {name: value for name, value in options.items() if name not in own}
        eye, start, columns = torch.eye(sum(widths.values()), dtype=torch.float64), 0, {}
        for name, width in widths.items():
            columns[name], start = eye[:, start : start + width], start + width
        return cls(columns, **{name: value for name, value in options.items() if name in own})

    @property
    def d_model(self) -> int:
        return next(iter(self.columns.values())).shape[0]

    @property
    def widths(self) -> dict[str, int]:
        return {name: basis.shape[1] for name, basis in self.columns.items()}

    @property
    def slices(self) -> dict[str, slice]:
        """Where each block lies among the coordinates."""
        slices, start = {}, 0
        for name, width in self.widths.items():
            slices[name], start = slice(start, start + width), start + width
        return slices

    @property
    def basis(self) -> Float[Tensor, "d_model d_model"]:
        return torch.cat([basis for basis in self.columns.values()], dim=1)

    @property
    def dual(self) -> Float[Tensor, "d_model d_model"]:
        """coordinates = z @ dual, since z = coordinates @ basisᵀ."""
        return torch.linalg.inv(self.basis.double()).T

    def coordinates(self, z: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Residual rows in block coordinates, the blocks side by side in the order of `columns`."""
        if z.shape[-1] != self.d_model:
            raise ValueError(f"the layout has {self.d_model} columns {self.widths}, the rows given have {z.shape[-1]}")
        return z @ self.dual.to(z)

    def predict(self, z: Float[Tensor, "*batch token d_model"]) -> Float[Tensor, "*batch query out"]:
        """The prediction that the residual stream holds: sign * read-out block of the query rows."""
        rows = z[..., -self.n_query :, :]
        if rows.shape[-1] != self.d_model:
            raise ValueError(f"the layout has {self.d_model} columns {self.widths}, the rows given have {z.shape[-1]}")
        return self.sign * (rows @ self.dual[:, self.slices[self.readout]].to(z))

    def n_context(self, n_tokens: int) -> int:
        """The number of context rows of a prompt of `n_tokens` rows."""
        n = n_tokens - self.n_query
        if n < 1:
            raise ValueError(f"a prompt of {n_tokens} rows has no context: the layout takes {self.n_query} query rows")
        if n % self.machines:
            raise ValueError(f"{n} context rows cannot be split evenly over {self.machines} machines")
        return n

    def head_visibility(self, n_heads: int) -> list[Visibility]:
        """One `Visibility` a head."""
        if isinstance(self.visibility, Visibility):
            return [self.visibility] * n_heads
        if len(self.visibility) != n_heads:
            raise ValueError(f"the layout states {len(self.visibility)} visibilities for a model of {n_heads} heads")
        return list(self.visibility)

    def allowed(self, n_tokens: int, n_heads: int) -> Bool[Tensor, "head token token"]:
        """allowed[h, i, k]: may row i see row k in head h."""
        rules = self.head_visibility(n_heads)
        return torch.stack([self._allowed_by(rule, n_tokens) for rule in rules])

    def _allowed_by(self, visibility: Visibility, n_tokens: int) -> Bool[Tensor, "token token"]:
        n = self.n_context(n_tokens)
        return torch.cat(
            [self.rule_mask(visibility.context, n_tokens)[:n], self.rule_mask(visibility.query, n_tokens)[n:]]
        )

    def rule_mask(self, rule: str, n_tokens: int) -> Bool[Tensor, "token token"]:
        """mask[i, k]: does row i see row k under one rule of `RULES`."""
        row = torch.arange(n_tokens)
        n, diagonal = self.n_context(n_tokens), row[:, None] == row
        context = (row < n).expand(n_tokens, n_tokens)
        machine = row // (n // self.machines)
        masks = {
            "none": torch.zeros_like(diagonal),
            "context": context,
            "machine": context & (machine[:, None] == machine),
            "context_and_self": context | diagonal,
            "causal": row[:, None] >= row,
            "all": torch.ones_like(diagonal),
        }
        return masks[rule]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a basis of unit vectors is written as their indices."""
        many = not isinstance(self.visibility, Visibility)
        rules = [
            {role: rule.of(role) for role in ROLES}
            for rule in self.head_visibility(len(self.visibility) if many else 1)
        ]
        return {
            "columns": {name: _basis_to_list(basis) for name, basis in self.columns.items()},
            "n_query": self.n_query,
            "visibility": rules if many else rules[0],
            "machines": self.machines,
            "readout": self.readout,
            "sign": self.sign,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BlockLayout":
        """The inverse of `to_dict`."""
        d_model = sum(
            len(basis) if isinstance(basis[0], int) else len(basis[0]) for basis in values["columns"].values()
        )
        rules = values["visibility"]
        visibility = Visibility(**rules) if isinstance(rules, Mapping) else tuple(Visibility(**rule) for rule in rules)
        columns = {name: _basis_from_list(basis, d_model) for name, basis in values["columns"].items()}
        return cls(**{**values, "columns": columns, "visibility": visibility})


def _basis_to_list(basis: Float[Tensor, "d_model width"]) -> list[Any]:
    index = basis.argmax(dim=0)
    unit = torch.nn.functional.one_hot(index, basis.shape[0]).T
    return index.tolist() if torch.equal(unit.to(basis), basis) else basis.tolist()


def _basis_from_list(basis: list[Any], d_model: int) -> Float[Tensor, "d_model width"]:
    if isinstance(basis[0], int):
        return torch.eye(d_model, dtype=torch.float64)[:, basis]
    return torch.tensor(basis, dtype=torch.float64)
