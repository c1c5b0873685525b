"""BlockLayout: what the columns and the rows of a prompt mean.

A prompt is a matrix, one token a row. Its columns fall into blocks (x, y, constant, position, ...), each given as a
basis of the residual stream; its last `n_query` rows are queries, the others context. The layout also says who may
attend to whom and how the prediction is read. Models and analyses share this vocabulary and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.visibility import ROLES, RULES, Visibility, machine_of, visibility_mask

__all__ = ["ROLES", "RULES", "BlockLayout", "Visibility", "machine_of"]


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """The meaning of a prompt's columns and rows.

    Args:
        columns: for each column block its basis [d_model, width], kept in float64 on the CPU. Together the bases are
            invertible: a residual row is z = Σ u_block @ basis_blockᵀ, and u = `coordinates(z)`.
        n_query: how many of the last rows are queries. The number of context rows follows from the prompt.
        visibility: one rule for all heads, or one a head.
        machines: the context rows are split evenly, in order, over this many machines.
        readout: the block in which the model answers, on the query rows.
        sign: the prediction is sign * that block (EAGLE models end at D → -B A⁺ C, so theirs is -1).
        symmetry: blocks that rotate together with another, {"velocity": "y"}; every block turns by itself otherwise.
    """

    columns: Mapping[str, Float[Tensor, "d_model width"]]
    n_query: int = 1
    visibility: Visibility | Sequence[Visibility] = field(default_factory=Visibility)
    machines: int = 1
    readout: str = "y"
    sign: float = 1.0
    symmetry: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("BlockLayout: no column blocks given; give at least x and y, each [d_model, width]")
        columns = {name: basis.detach().to("cpu", torch.float64) for name, basis in self.columns.items()}
        object.__setattr__(self, "columns", columns)
        if not isinstance(self.visibility, Visibility):
            if isinstance(self.visibility, str) or not all(isinstance(rule, Visibility) for rule in self.visibility):
                raise ValueError(
                    f"BlockLayout: visibility must be a Visibility or one a head, got {self.visibility!r}; "
                    'write Visibility("causal", "causal")'
                )
            object.__setattr__(self, "visibility", tuple(self.visibility))
        self._check_rows()
        self._check_columns()
        self._check_symmetry()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockLayout) and self.to_dict() == other.to_dict()

    def _check_rows(self) -> None:
        for name in ("n_query", "machines"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(
                    f"BlockLayout: {name} must be a whole number of at least 1, got {getattr(self, name)!r}"
                )
        if not (math.isfinite(self.sign) and self.sign):
            raise ValueError(f"BlockLayout: the sign of the read-out must be finite and not 0, got {self.sign}")
        rules = (self.visibility,) if isinstance(self.visibility, Visibility) else self.visibility
        served = [machine_of(rule.of(role)) or 0 for rule in rules for role in ROLES]
        if max(served, default=0) >= self.machines:
            raise ValueError(f"BlockLayout: a head serves machine {max(served)} of {self.machines}, counted from 0")
        if self.readout not in self.columns:
            raise ValueError(f"BlockLayout: the read-out block {self.readout!r} is not one of {list(self.columns)}")

    def _check_columns(self) -> None:
        for name in self.columns:
            if not (name.isidentifier() and name.isascii()):
                raise ValueError(f"BlockLayout: {name!r} is no name for a block; take letters, digits and underscores")
        shapes = {name: tuple(basis.shape) for name, basis in self.columns.items()}
        if any(len(shape) != 2 for shape in shapes.values()) or len({shape[0] for shape in shapes.values()}) != 1:
            raise ValueError(f"BlockLayout: every basis must be [d_model, width] with one d_model, got {shapes}")
        for name, basis in self.columns.items():
            if not basis.shape[1] or not basis.isfinite().all():
                raise ValueError(
                    f"BlockLayout: the basis of block {name!r} is empty or not finite; leave it out or mend it"
                )
        d_model, width = self.d_model, sum(self.widths.values())
        if width != d_model or torch.linalg.matrix_rank(self.basis) < d_model:
            raise ValueError(
                f"BlockLayout: the blocks {self.widths} do not cover the {d_model} columns of the residual stream "
                "exactly once; name the remaining directions as a block of their own"
            )

    def _check_symmetry(self) -> None:
        for name, partner in self.symmetry.items():
            if name not in self.columns or partner not in self.columns:
                raise ValueError(
                    f"BlockLayout: symmetry {name!r} with {partner!r}, but the blocks are {list(self.columns)}"
                )
            if self.widths[name] != self.widths[partner]:
                raise ValueError(
                    f"BlockLayout: {name} and {partner} cannot rotate together: the widths are {self.widths}"
                )
            if partner in self.symmetry:
                raise ValueError(
                    f"BlockLayout: {name} rotates with {partner}, which itself rotates with another; name that"
                )

    def rotates_with(self, name: str) -> str:
        """The block whose rotations a block follows: its partner in `symmetry`, or itself."""
        return self.symmetry.get(name, name)

    @classmethod
    def standard(cls, **options: Any) -> "BlockLayout":
        """Blocks as consecutive columns: `BlockLayout.standard(x=10, y=5, n_query=5, sign=-1)`."""
        own = {entry.name for entry in fields(cls)} - {"columns"}
        widths = {name: value for name, value in options.items() if name not in own}
        for name, width in widths.items():
            if not isinstance(width, int) or name.startswith("n_"):
                raise ValueError(
                    f"BlockLayout.standard: {name}={width!r} is no width of a block; options: {sorted(own)}"
                )
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

    @cached_property
    def dual(self) -> Float[Tensor, "d_model d_model"]:
        """coordinates = z @ dual, since z = coordinates @ basisᵀ."""
        return torch.linalg.inv(self.basis).T

    @property
    def reader(self) -> Float[Tensor, "d_model out"]:
        """prediction = z @ reader on a query row: sign * the columns of `dual` that read the read-out block."""
        return self.sign * self.dual[:, self.slices[self.readout]]

    def coordinates(self, z: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Residual rows in block coordinates, the blocks side by side in the order of `columns`."""
        if z.shape[-1] != self.d_model:
            raise ValueError(f"the layout has {self.d_model} columns {self.widths}, the rows given have {z.shape[-1]}")
        return z @ self.dual.to(z)

    def predict(self, z: Float[Tensor, "*batch token d_model"]) -> Float[Tensor, "*batch query out"]:
        """The prediction that the residual stream holds: sign * read-out block of the query rows."""
        if z.shape[-1] != self.d_model:
            raise ValueError(f"the layout has {self.d_model} columns {self.widths}, the rows given have {z.shape[-1]}")
        return z[..., -self.n_query :, :] @ self.reader.to(z)

    def n_context(self, n_tokens: int) -> int:
        """The number of context rows of a prompt of `n_tokens` rows."""
        n = n_tokens - self.n_query
        if n < 1:
            raise ValueError(f"a prompt of {n_tokens} rows has no context: the layout takes {self.n_query} query rows")
        if n % self.machines:
            raise ValueError(f"{n} context rows cannot be split evenly over {self.machines} machines")
        return n

    def rows(self, role: str, n_tokens: int) -> slice:
        """The rows of a role, "context" or "query", among all rows of a prompt."""
        n = self.n_context(n_tokens)
        return slice(0, n) if role == "context" else slice(n, n_tokens)

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
        n = self.n_context(n_tokens)
        return torch.stack([visibility_mask(rule, n_tokens, n, self.machines) for rule in rules])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a basis of unit vectors is written as their indices."""
        visibility = self.visibility
        rules = asdict(visibility) if isinstance(visibility, Visibility) else [asdict(rule) for rule in visibility]
        return {
            "columns": {name: _basis_to_list(basis) for name, basis in self.columns.items()},
            "n_query": self.n_query,
            "visibility": rules,
            "machines": self.machines,
            "readout": self.readout,
            "sign": self.sign,
            "symmetry": dict(self.symmetry),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BlockLayout":
        """The inverse of `to_dict`.

        Raises:
            ValueError: an entry is missing, unknown or malformed.
        """
        known = {entry.name for entry in fields(cls)}
        if {*values, "symmetry"} != known:
            raise ValueError(f"BlockLayout: the entries must be {sorted(known)}, got {sorted(values)}")
        try:
            columns, visibility = _columns_from_lists(values["columns"]), _visibility_from(values["visibility"])
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            raise ValueError(f"BlockLayout: columns or visibility are not as `to_dict` writes them: {error}") from error
        return cls(**{**values, "columns": columns, "visibility": visibility})


def _basis_to_list(basis: Float[Tensor, "d_model width"]) -> list[Any]:
    index = basis.argmax(dim=0)
    unit = torch.nn.functional.one_hot(index, basis.shape[0]).T
    return index.tolist() if torch.equal(unit.to(basis), basis) else basis.tolist()


def _columns_from_lists(lists: Mapping[str, list[Any]]) -> dict[str, Float[Tensor, "d_model _"]]:
    d_model = sum(len(basis) if isinstance(basis[0], int) else len(basis[0]) for basis in lists.values())
    return {name: _basis_from_list(basis, d_model) for name, basis in lists.items()}


def _visibility_from(rules: Mapping[str, str] | Sequence[Mapping[str, str]]) -> Visibility | tuple[Visibility, ...]:
    return Visibility(**rules) if isinstance(rules, Mapping) else tuple(Visibility(**rule) for rule in rules)


def _basis_from_list(basis: list[Any], d_model: int) -> Float[Tensor, "d_model width"]:
    if isinstance(basis[0], int):
        return torch.eye(d_model, dtype=torch.float64)[:, basis]
    return torch.tensor(basis, dtype=torch.float64)
