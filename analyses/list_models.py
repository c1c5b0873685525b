"""What ships: name, size, task, the model's own error, and the form of its update."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from analyses.terminal import to_json
from interp import closed_form, unroll
from models import zoo
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Entry:
    """One model of the zoo. `share` of each layer's squared weight norm, at least, is the two words of its `update`."""

    name: str
    task: str
    layers: int
    parameters: int
    relative_error: float
    median_squared_error: float
    update: str
    share: float
    prior: str


def run() -> list[Entry]:
    """Load and unroll every model that ships."""
    return [_entry(name) for name in zoo.names()]


def _entry(name: str) -> Entry:
    model, metadata = zoo.load(name), zoo.metadata(name)
    update, share = _update(model)
    metrics = metadata["metrics"]
    return Entry(
        name=name,
        task=str(zoo.family(name)),
        layers=model.cfg.n_layers,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        relative_error=metrics["relative_error"]["median"],
        median_squared_error=metrics["squared_error"]["median"],
        update=update,
        share=share,
        prior=metadata["prior"],
    )


def _update(model: HookedTransformer) -> tuple[str, float]:
    """The form of the update, and its share of the weights."""
    if not model.cfg.is_linear_attention:
        return "no rule, for it is not linear attention", 0.0
    form = closed_form(unroll(model))
    return ((form.form or "two words, signs mixed"), form.share) if form else ("no closed form", 0.0)


def to_text(entries: list[Entry]) -> str:
    """Two lines a model."""
    lines, width = [], max(len(entry.name) for entry in entries)
    for entry in entries:
        share = f" ({entry.share:.6f} of the weights)" if entry.share else ""
        lines += [
            f"{entry.name:<{width}}  {entry.layers} layer{'s' * (entry.layers > 1)}, {entry.parameters:,} parameters, "
            f"median relative error {entry.relative_error:.3g}; update: {entry.update}{share}",
            f"{'':<{width}}  {entry.task}",
        ]
    return "\n".join(lines)


def command(format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text") -> None:
    """List the trained models that ship with the package."""
    entries = run()
    values: list[dict[str, Any]] = [asdict(entry) for entry in entries]
    typer.echo(to_json(values) if format == "json" else to_text(entries))
