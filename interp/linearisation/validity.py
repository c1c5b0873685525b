"""How far from its prompts a linearisation holds: against the model, along stated moves, at stated distances."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.linearisation.affine import Linearisation
from interp.unrolling.spectral import input_block

DISTANCES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
TRUSTED = 0.1
"""Relative error of the change up to which a map is said to hold."""
OTHER_QUERY = "the query of another prompt"
Move = Callable[[Float[Tensor, "prompt token width"], float, torch.Generator], Tensor]


@dataclass(frozen=True)
class Row:
    """One move at one distance, over all prompts.

    Errors of the change: √mean ‖Δmap − Δmodel‖² / √mean ‖Δmodel‖², Δ from the answer at the prompts; "no change at all"
    has 1. `frozen_value` is √mean ‖frozen − model‖² / √mean ‖model‖², and `moved` √mean ‖Δmodel‖² / √mean ‖model‖².
    """

    move: str
    distance: float
    moved: float
    frozen_value: float
    frozen: float
    affine: float
    tangent: float
    gates_changed: float | None


@dataclass(frozen=True)
class Validity:
    """A linearisation's errors along moves, and the largest distance up to which each map holds along each."""

    rows: tuple[Row, ...]
    trusted: float = TRUSTED

    def reach(self, move: str, of: str) -> float:
        """The largest distance such that there and at all smaller ones the error of the change is at most `trusted`."""
        reached = 0.0
        for row in sorted((row for row in self.rows if row.move == move), key=lambda row: row.distance):
            if not getattr(row, of) <= self.trusted:
                break
            reached = row.distance
        return reached

    @property
    def moves(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.move for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        reach = {move: {of: self.reach(move, of) for of in ("frozen", "affine", "tangent")} for move in self.moves}
        return {"rows": [asdict(row) for row in self.rows], "trusted": self.trusted, "reach": reach}

    def __str__(self) -> str:
        gates = any(row.gates_changed is not None for row in self.rows)
        lines = [
            "error of the change of the answer, relative to the change (rms over prompts; 1 is as bad as no change)",
            f"  {'move':<34}{'distance':>9}{'moved by':>10}{'frozen':>9}{'affine':>9}{'tangent':>9}"
            + ("  gates changed" if gates else ""),
        ]
        for row in self.rows:
            cells = "".join(f"{value:>9.3g}" for value in (row.frozen, row.affine, row.tangent))
            changed = "" if row.gates_changed is None else f"{row.gates_changed:>15.2%}"
            lines.append(f"  {row.move:<34}{row.distance:>9g}{row.moved:>10.3g}{cells}{changed}")
        return "\n".join([*lines, *self._reaches()])

    def _reaches(self) -> list[str]:
        lines = [f"within {self.trusted:.0%} of the change, up to distance (0: at none of those tried)"]
        for move in self.moves:
            reached = ", ".join(f"{of} {self.reach(move, of):g}" for of in ("frozen", "affine", "tangent"))
            lines.append(f"  {move:<34}{reached}")
        return lines


def standard_moves(layout: BlockLayout | None) -> dict[str, Move]:
    """What is moved: the query's inputs, the labels up and down, and the whole prompt, by a distance relative to each.

    Without a layout of the tokens, the query row and the whole prompt.
    """
    moves: dict[str, Move] = {"whole prompt, random direction": lambda z, size, g: _nudged(z, z, size, g)}
    if layout is None:
        return {
            "query row, random direction": lambda z, size, g: _nudged(z, _rows(z, slice(-1, None)), size, g),
            **moves,
        }
    queries = slice(-layout.n_query, None)
    inputs, labels = (_block(layout, name) for name in (input_block(layout), _label_block(layout)))
    return {
        "query, random direction": lambda z, size, g: _nudged(z, _rows(z, queries) @ inputs.to(z), size, g, inputs),
        "labels × (1 + distance)": lambda z, size, g: z + size * _context(z, layout) @ labels.to(z),
        "labels × (1 − distance)": lambda z, size, g: z - size * _context(z, layout) @ labels.to(z),
        **moves,
    }


def validity(
    linearisation: Linearisation,
    distances: Sequence[float] = DISTANCES,
    moves: Mapping[str, Move] | None = None,
    seed: int = 0,
) -> Validity:
    """Errors of the frozen model, its affine map and the tangent along moves of the prompts.

    Args:
        distances: relative sizes of the moves.
        moves: by name, (tokens, distance, generator) → tokens; by default `standard_moves`, and every query in the
            place of another prompt's, which has no distance.

    Raises:
        ValueError: a distance that is not positive.
    """
    if not distances or min(distances) <= 0:
        raise ValueError(f"validity: the distances must be positive numbers, got {list(distances)}")
    layout, tokens = linearisation.frozen.asked.layout, linearisation.frozen.tokens
    described = layout if layout is not None and layout.d_model == tokens.shape[-1] else None
    chosen = standard_moves(described) if moves is None else moves
    rows = []
    for name, move in chosen.items():
        for distance in sorted(distances):
            moved = move(tokens, distance, torch.Generator().manual_seed(seed))
            rows.append(_row(linearisation, name, distance, moved))
    if moves is None and described is not None and len(tokens) > 1:
        rows.append(_row(linearisation, OTHER_QUERY, _gap(tokens, described), with_other_queries(tokens, described)))
    return Validity(tuple(rows))


def with_other_queries(tokens: Float[Tensor, "prompt token width"], layout: BlockLayout) -> Tensor:
    """Every prompt with the query rows of the next."""
    return torch.cat([tokens[:, : -layout.n_query], tokens[:, -layout.n_query :].roll(1, 0)], dim=1)


def _row(linearisation: Linearisation, name: str, distance: float, moved: Tensor) -> Row:
    frozen = linearisation.frozen
    start, model = linearisation.tangent.value, frozen.model_answer(moved)
    by_frozen = frozen(moved)
    change, size = _rms(model - start), _rms(model)
    by_map = {"frozen": by_frozen, "affine": linearisation.affine(moved), "tangent": linearisation.tangent(moved)}
    errors = {of: _ratio(_rms(value - model), change) for of, value in by_map.items()}
    return Row(
        name,
        distance,
        _ratio(change, size),
        _ratio(_rms(by_frozen - model), size),
        gates_changed=frozen.gates_changed(moved),
        **errors,
    )


def _rms(values: Float[Tensor, "prompt query out"]) -> float:
    return values.flatten(1).square().sum(1).mean().sqrt().item()


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("inf") if part else 0.0


def _gap(tokens: Tensor, layout: BlockLayout) -> float:
    """How far the next prompt's queries are, relative to the queries."""
    queries = tokens[:, -layout.n_query :]
    return _ratio(_rms(queries.roll(1, 0) - queries), _rms(queries))


def _nudged(z: Tensor, part: Tensor, size: float, generator: torch.Generator, onto: Tensor | None = None) -> Tensor:
    """z moved in a random direction of the same support as `part`, by size · ‖part‖ of each prompt."""
    direction = torch.randn(part.shape, generator=generator, dtype=torch.float64).to(z)
    direction = direction * (part != 0).any(2, keepdim=True)
    direction = direction if onto is None else direction @ onto.to(z)
    length = size * part.flatten(1).norm(dim=1) / direction.flatten(1).norm(dim=1).clamp(min=1e-300)
    return z + length[:, None, None] * direction


def _rows(z: Tensor, rows: slice) -> Tensor:
    """The prompt with every other row 0."""
    out = torch.zeros_like(z)
    out[:, rows] = z[:, rows]
    return out


def _context(z: Tensor, layout: BlockLayout) -> Tensor:
    return _rows(z, slice(None, -layout.n_query))


def _block(layout: BlockLayout, name: str) -> Float[Tensor, "width width"]:
    """z ↦ the part of z in a block."""
    at = layout.slices[name]
    return layout.dual[:, at] @ layout.basis[:, at].T


def _label_block(layout: BlockLayout) -> str:
    """The block that holds the labels: the one that is read out, or the one that it rotates with."""
    return layout.rotates_with(layout.readout)
