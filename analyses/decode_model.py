"""Decode a model: implicit weights, inverse Hessian and contributions by depth, and what changing them does."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from analyses.subject import Subject, check_pairs, open_subject, token_form
from analyses.terminal import MAX_SEED, note, run_command, to_json
from interp.decoding import Decoding, Interchange, Written, decode, interchange, write_weights
from interp.decoding.text import table
from models.prompts import Prompts

AGREEMENT = 1e-8
MIXED_AGREEMENT = 1e-7
LEAST_MOVE = 1e-8


@dataclass(frozen=True)
class Config:
    """Which model, and on how many prompts it is decoded and changed."""

    model: str
    prompts: int = 64
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.prompts < 2:
            raise ValueError(f"prompts={self.prompts} must be at least 2: the causal check swaps the states of two")


@dataclass(frozen=True)
class Decoded:
    """The answer for one model; `writes` are empty where no algebra says what they should do."""

    subject: Subject
    decoding: Decoding
    swaps: tuple[Interchange, ...]
    writes: tuple[Written, ...]

    @property
    def agrees(self) -> bool:
        """Do the roads to w and, where there are two, to ∂w/∂y meet; those to w of a model that is not linear in its
        query need not."""
        return not self.disagreements

    @property
    def disagreements(self) -> list[str]:
        """What is further apart than rounding allows, a sentence each."""
        weights, mixed = self.decoding.agreement.max(), self.decoding.mixed_agreement
        found = []
        if self.decoding.is_linear and not weights <= AGREEMENT:
            found.append(f"the roads to the implicit weights are {weights:.3g} apart, not {AGREEMENT:g}")
        if mixed is not None and not mixed.max() <= MIXED_AGREEMENT:
            found.append(f"the roads to ∂w/∂y are {mixed.max():.3g} apart, not {MIXED_AGREEMENT:g}")
        return found

    def __str__(self) -> str:
        assumed = "" if self.subject.stated else " (assumed: the checkpoint states no task)"
        parts = [f"{self.subject.name}\nprompts: {self.subject.family}{assumed}", str(self.decoding)]
        return "\n\n".join([*parts, "\n".join(_causal_lines(self.swaps, self.writes))])

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "prompts": {**self.subject.family.to_dict(), "stated_by_checkpoint": self.subject.stated},
            **self.decoding.to_dict(),
            "agrees": self.agrees,
            "interchange": [swap.to_dict() for swap in self.swaps],
            "written": [write.to_dict() for write in self.writes],
        }


def run(config: Config) -> Decoded:
    """Load, decode, change."""
    subject = open_subject(config.model, config.device)
    check_pairs(subject.model, token_form(subject.metadata))
    prompts = subject.prompts(config.prompts, 3 * config.seed)
    decoding = decode(subject.model, prompts)
    depths = range(len(decoding.weights))
    swaps = [interchange(subject.model, prompts, depth, rows) for depth in depths for rows in ("query", "context")]
    writes = _writes(subject, prompts, decoding, config.seed) if decoding.by_rule is not None else []
    return Decoded(subject, decoding, tuple(swaps), tuple(writes))


def _writes(subject: Subject, prompts: Prompts, decoding: Decoding, seed: int) -> list[Written]:
    """At every depth, in the query rows alone and in all rows, a move as large as ‖w_l − A⁺C‖, and no
    smaller than `LEAST_MOVE` of ‖A⁺C‖, below which rounding would be measured."""
    target = decoding.least_squares
    direction = torch.randn(target.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(target)
    direction /= direction.flatten(1).norm(dim=1)[:, None, None]
    sizes = decoding.w_relative_error.clamp(min=LEAST_MOVE) * target.flatten(1).norm(dim=1)
    return [
        write_weights(subject.model, prompts, depth, sizes[depth, :, None, None] * direction, rows)
        for depth in range(len(decoding.weights))
        for rows in ("query", "all")
    ]


def _causal_lines(swaps: Sequence[Interchange], writes: Sequence[Written]) -> list[str]:
    """Depths across: how far the prediction moves, and how far the rule is off in saying so."""
    swapped = {f"{rows} rows, change": _of(swaps, rows, "effect") for rows in ("query", "context")}
    lines = ["causal check: prompts go on from another's state; relative change of the prediction"]
    lines += table({**swapped, **_off(swaps, ("query", "context"))}, "depth")
    if not writes:
        return lines
    moved = {f"{rows} rows, share of B δ": _of(writes, rows, "gain") for rows in ("query", "all")}
    closed = {"all rows, closed form off": _of(writes, "all", "closed_form_error")}
    lines += ["causal check: w moved by a random δ, as large as it is still off; what reaches the prediction"]
    return [*lines, *table({**moved, **_off(writes, ("query", "all")), **closed}, "depth")]


def _of(values: Sequence[Any], rows: str, name: str) -> list[Any]:
    return [getattr(value, name) for value in values if value.rows == rows]


def _off(values: Sequence[Any], rows: tuple[str, str]) -> dict[str, list[float]]:
    """By depth, the worst difference from the rule; nothing where there is no rule."""
    both = zip(*(_of(values, name, "error") for name in rows), strict=True)
    return {} if values[0].error is None else {"the rule is off, at worst": [max(pair) for pair in both]}


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    figure: Annotated[Path | None, typer.Option(help="Draw errors by eigenvalue and depth to this file.")] = None,
    prompts: Annotated[int, typer.Option(help="Prompts on which the model is decoded.")] = Config.prompts,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the prompts.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Read implicit weights and inverse Hessians out of the activations. Exit code 1 if the roads to them disagree."""
    result = run(Config(model, prompts, seed, device))
    if figure is not None:
        from analyses.decoding_figure import draw_decoding

        draw_decoding(result.decoding, result.subject.name, figure)
        note(f"figure: {figure}")
    typer.echo(to_json(result.to_dict()) if format == "json" else str(result))
    for sentence in result.disagreements:
        note(sentence)
    if not result.agrees:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.decode_model MODEL …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
