"""Inspect a file of weights: what it is, which loader takes it, its shapes and parity, and what can be asked of it."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from analyses.subject import check_pairs
from analyses.terminal import run_command, to_json
from interp.unrolling.circuits import check_unrollable
from models import foreign
from models.foreign import Inspection, TokenForm
from models.transformer import HookedTransformer

SHAPES = 12
"""Arrays listed in text; JSON has all."""
YES = "yes"
UNKNOWN_TOKENS = "how prompts become the model's tokens is not known; use interp.ablation from Python"


@dataclass(frozen=True)
class Inspected:
    """The entries of a path; each model with what can be asked of it: "yes", or why not."""

    entries: tuple[Inspection, ...]
    asks: tuple[dict[str, str], ...]

    @property
    def readable(self) -> bool:
        return all(entry.model is not None for entry in self.entries)

    def __str__(self) -> str:
        return "\n\n".join(_text(entry, asks) for entry, asks in zip(self.entries, self.asks, strict=True))

    def to_dict(self) -> list[dict[str, Any]]:
        return [_values(entry, asks) for entry, asks in zip(self.entries, self.asks, strict=True)]


def run(path: str, format: str | None = None, **options: Any) -> Inspected:
    """Look at a file or a directory."""
    entries = foreign.inspect(path, format, **options)
    asks = ({} if entry.model is None else what_can_be_asked(entry.model, entry.form) for entry in entries)
    return Inspected(tuple(entries), tuple(asks))


def what_can_be_asked(model: HookedTransformer, form: TokenForm | None) -> dict[str, str]:
    """For every command "yes", or the reason why it refuses the model."""
    exact = _refusal(lambda: check_unrollable(model))
    shape = _refusal(lambda: check_pairs(model, form))
    return {
        "unroll": exact or YES,
        "identify": exact or shape or YES,
        "decode": shape or YES,
        "probe": shape or YES,
        "ablate": UNKNOWN_TOKENS if form is None else YES,
    }


def answer_of(model: HookedTransformer) -> str:
    """Where the model answers, in a word."""
    return "of its own read-out" if model.cfg.d_out is not None else f"{model.layout.sign:+g} · {model.layout.readout}"


def _refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except ValueError as error:
        return str(error).removeprefix("unroll: ")
    return None


def _text(entry: Inspection, asks: dict[str, str]) -> str:
    size = sum(_count(shape) for shape in entry.shapes.values())
    taken = entry.format or "no loader takes it"
    lines = [
        f"{entry.path}",
        f"  file      {entry.kind}, {len(entry.shapes)} arrays, {size:,} numbers",
        f"  format    {taken}",
    ]
    shapes = [f"{name} {shape}" for name, shape in list(entry.shapes.items())[:SHAPES]]
    left = len(entry.shapes) - SHAPES
    lines += [f"  array     {shape}" for shape in shapes] + ([f"            and {left} more"] if left > 0 else [])
    if entry.model is not None:
        lines += _model_lines(entry, entry.model)
    if entry.parity is not None:
        lines.append(f"  checked   {entry.parity}")
    lines += [f"  assumed   {note}" for note in entry.notes]
    lines += [f"  {command:<9} {answer}" for command, answer in asks.items()]
    return "\n".join(lines + ([f"  problem   {entry.problem}"] if entry.problem else []))


def _model_lines(entry: Inspection, model: HookedTransformer) -> list[str]:
    cfg, layout = model.cfg, model.layout
    parts = [f"{cfg.n_layers} layers of {cfg.n_heads} heads", f"width {cfg.d_model}", f"attention {cfg.kernel}"]
    parts += ["attention only" if cfg.attn_only else f"MLPs of {cfg.d_mlp} {cfg.act_fn} units"]
    parts += ["layer norm" + (" before and after" if cfg.post_norm else "")] if cfg.normalization_type else []
    form = "unknown: build them yourself" if entry.form is None else entry.form.name
    return [
        f"  model     {', '.join(parts)}",
        f"  layout    {layout.widths}, answer {answer_of(model)}",
        f"  tokens    {form}",
    ]


def _values(entry: Inspection, asks: dict[str, str]) -> dict[str, Any]:
    model = entry.model
    return {
        "path": str(entry.path),
        "kind": entry.kind,
        "format": entry.format,
        "shapes": dict(entry.shapes),
        "architecture": None if model is None else model.cfg.to_dict(),
        "layout": None if model is None else model.layout.to_dict(),
        "tokens": None if entry.form is None else entry.form.to_dict(),
        "parity": None if entry.parity is None else {**entry.parity.to_dict(), "holds": entry.parity.holds},
        "provenance": dict(entry.provenance),
        "notes": list(entry.notes),
        "asks": asks,
        "problem": entry.problem,
    }


def _count(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


Format = Annotated[str | None, typer.Option(help=f"The loader: {', '.join(foreign.FORMATS)}; found if not given.")]
Layout = Annotated[str | None, typer.Option(help="Column blocks and read-out: x=10,y=1,position=6,readout=y,sign=-1.")]
Heads = Annotated[int | None, typer.Option(min=1, help="Heads of a layer, where the weights do not tell.")]
Layers = Annotated[int | None, typer.Option(min=1, help="How often the one layer of a Haiku tree is run.")]
Scale = Annotated[str | None, typer.Option(help="Of the scores of bare matrices: none, sqrt_d_head or n.")]
Transposed = Annotated[bool | None, typer.Option("--transposed", help="Bare matrices act on columns, as torch's do.")]
Convention = Annotated[str | None, typer.Option(help="Of merged weights: code or paper, a transpose of Q apart.")]
InputsOnly = Annotated[bool | None, typer.Option("--inputs-only", help="Merged weights are those of the inputs alone.")]


def command(
    path: Annotated[str, typer.Argument(help="A file of weights, a checkpoint of this package, or a directory.")],
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    loader: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(foreign.FORMATS)}; found if not given.")
    ] = None,
    layout: Layout = None,
    heads: Heads = None,
    layers: Layers = None,
    scale: Scale = None,
    transposed: Transposed = None,
    convention: Convention = None,
    inputs_only: InputsOnly = None,
) -> None:
    """Say what a file of weights is, which loader takes it, what can be asked of it. Exit code 1 if none takes it."""
    options = {"layout": layout, "heads": heads, "layers": layers, "scale": scale, "transposed": transposed}
    result = run(path, loader, **options, convention=convention, inputs_only=inputs_only)
    typer.echo(to_json(result.to_dict()) if format == "json" else str(result))
    if not result.readable:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.inspect_model PATH …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
