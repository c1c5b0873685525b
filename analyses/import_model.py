"""Import a model of someone else's: convert it, check it against its own conventions, store it with its provenance."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.inspect_model import (
    Convention,
    Format,
    Heads,
    InputsOnly,
    Layers,
    Layout,
    Scale,
    Transposed,
    answer_of,
    what_can_be_asked,
)
from analyses.subject import check_family
from analyses.terminal import run_command, to_json
from models import checkpoints, foreign
from models.foreign import Foreign
from models.prompts import PromptFamily, family_from_dict


@dataclass(frozen=True)
class Imported:
    """Where the model was stored, and what it is."""

    record: Path
    foreign: Foreign
    family: PromptFamily | None

    @property
    def reference(self) -> str:
        """What the other commands take."""
        return str(self.record).removesuffix(checkpoints.RECORD)

    @property
    def asks(self) -> dict[str, str]:
        return what_can_be_asked(self.foreign.model, self.foreign.form)

    def __str__(self) -> str:
        source, layout = self.foreign.provenance, self.foreign.layout
        checked = self.foreign.parity or "not checked"
        task = self.family or "not stated: commands assume one, or need --task here"
        lines = [
            f"stored    {self.reference}, from {source['file']} by the loader {source['loader']}",
            f"checked   {checked}",
            f"layout    {layout.widths}, answer {answer_of(self.foreign.model)}",
            f"prompts   {task}",
            *(f"assumed   {note}" for note in self.foreign.notes),
            *(f"{command:<9} {answer}" for command, answer in self.asks.items()),
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "stored": self.reference,
            **self.foreign.metadata(),
            "layout": self.foreign.layout.to_dict(),
            "task": None if self.family is None else self.family.to_dict(),
            "asks": self.asks,
        }


def run(
    path: str, out: Path, name: str | None = None, format: str | None = None, task: str | None = None, **options: Any
) -> Imported:
    """Convert and store.

    Raises:
        ValueError: the file is refused, the prompts do not fit the model, or there is a checkpoint of that name.
    """
    name = Path(path).name.partition(".")[0] if name is None else name
    for suffix in (checkpoints.RECORD, checkpoints.WEIGHTS):
        if (out / f"{name}{suffix}").exists():
            raise ValueError(f"there is a checkpoint {out / name} already; give another --name or --out")
    made = foreign.load(path, format, **options)
    family = None if task is None else parse_task(task)
    if family is not None:
        check_family(family, made.model, made.form)
    metadata = made.metadata() | ({} if family is None else {"task": family.to_dict()})
    return Imported(checkpoints.save(made.model, out, name, metadata), made, family)


def parse_task(text: str) -> PromptFamily:
    """A prompt family from "UniformRegression,n=10,d=10".

    Raises:
        ValueError: a setting is not name=number, or the family does not have it.
    """
    name, *settings = (part.strip() for part in text.split(","))
    values: dict[str, Any] = {"family": name}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            values[key] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise ValueError(f"the task {text!r} has the entry {setting!r}, which is not NAME=NUMBER") from None
    return family_from_dict(values)


def command(
    path: Annotated[str, typer.Argument(help="A file of weights of someone else's.")],
    out: Annotated[Path, typer.Option(help="The directory to store the model in.")],
    format: Format = None,
    name: Annotated[str | None, typer.Option(help="The name to store it under; the file's if not given.")] = None,
    task: Annotated[str | None, typer.Option(help="Prompts it was trained on: UniformRegression,n=10,d=10.")] = None,
    layout: Layout = None,
    heads: Heads = None,
    layers: Layers = None,
    scale: Scale = None,
    transposed: Transposed = None,
    convention: Convention = None,
    inputs_only: InputsOnly = None,
    printed: Annotated[Literal["text", "json"], typer.Option("--print", help="What to print.")] = "text",
) -> None:
    """Store a model of someone else's in the format of this package, after checking it against its own conventions."""
    options = {"layout": layout, "heads": heads, "layers": layers, "scale": scale, "transposed": transposed}
    result = run(path, out, name, format, task, **options, convention=convention, inputs_only=inputs_only)
    typer.echo(to_json(result.to_dict()) if printed == "json" else str(result))


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.import_model PATH --out DIR …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
