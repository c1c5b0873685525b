"""What ships: name, size, task, the model's own error, and the form of its update."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from analyses.terminal import to_json
from interp import closed_form, unroll
from interp.gaussian_process import posterior
from models import zoo
from models.prompts import GaussianProcess, PromptFamily
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Entry:
    """One model of the zoo. `share` of each layer's squared weight norm, at least, is the two words of its `update`;
    `over_ridge` is its mean squared error over that of kernel ridge regression on the prompts of its evaluation, None
    for tasks of no Gaussian process."""

    name: str
    task: str
    layers: int
    parameters: int
    relative_error: float
    median_squared_error: float
    over_ridge: float | None
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
        over_ridge=_over_ridge(zoo.family(name), metrics),
        update=update,
        share=share,
        prior=metadata["prior"],
    )


def _over_ridge(task: PromptFamily, metrics: Mapping[str, Any]) -> float | None:
    """The squared error over that of the best answers, on the same prompts."""
    if not isinstance(task, GaussianProcess):
        return None
    prompts = task.sample(metrics["prompts"], seed=metrics["seed"])
    best = posterior(task.kernel, task.lam, prompts.A, prompts.C, prompts.B).mean
    return metrics["squared_error"]["mean"] / (best - prompts.target).square().mean().item()


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
        best = f", squared error {entry.over_ridge:.3f} × that of KRR" if entry.over_ridge else ""
        lines += [
            f"{entry.name:<{width}}  {entry.layers} layer{'s' * (entry.layers > 1)}, {entry.parameters:,} parameters, "
            f"median relative error {entry.relative_error:.3g}{best}; update: {entry.update}{share}",
            f"{'':<{width}}  {entry.task}",
        ]
    return "\n".join(lines)


def command(format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text") -> None:
    """List the trained models that ship with the package."""
    entries = run()
    values: list[dict[str, Any]] = [asdict(entry) for entry in entries]
    typer.echo(to_json(values) if format == "json" else to_text(entries))
