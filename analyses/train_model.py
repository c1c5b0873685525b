"""Train a recipe, with the distance from the alphabet of update rules shown along the way."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.terminal import MAX_SEED, note, run_command, to_json
from interp import unroll
from models.recipes import recipe as recipe_by_name
from models.training import TrainedModel, train
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Config:
    """A training run: the recipe's name, where it goes, and what may differ from the recipe (its number of steps)."""

    recipe: str
    directory: Path
    resume: bool = False
    device: str = "auto"
    seed: int = 0
    steps: int | None = None
    progress: bool = True


def structure_distance(step: int, model: HookedTransformer, loss: float) -> dict[str, float]:
    """The largest relative distance, over layers, of the live layer tensor from the span of the words.

    Nothing for a model that is not linear attention and has no such tensor.
    """
    if not model.cfg.is_linear_attention:
        return {}
    rule = unroll(model)
    return {"distance": max(max(0.0, 1 - layer.weights_explained) ** 0.5 for layer in rule.layers)}


def run(config: Config) -> TrainedModel:
    """Train, or go on with a run."""
    recipe = recipe_by_name(config.recipe)
    if config.steps is not None:
        recipe = replace(recipe, steps=config.steps)
    return train(
        recipe,
        config.directory,
        resume=config.resume,
        device=config.device,
        seed=config.seed,
        progress=config.progress,
        callbacks=[structure_distance],
    )


def command(
    recipe: Annotated[str, typer.Argument(help="The name of a recipe.")],
    out: Annotated[Path, typer.Option(help="An empty or new directory for the run.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that directory.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of weights and prompts.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Train for so many steps instead of the recipe's.")] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print at the end.")] = "text",
) -> None:
    """Train a model. It can be stopped at any moment and resumed with --resume."""
    trained = run(Config(recipe, out, resume, device, seed, steps))
    if format == "json":
        typer.echo(to_json({"path": str(trained.path), **trained.metadata}))
    else:
        error = trained.metadata["metrics"]["relative_error"]["median"]
        typer.echo(f"{trained.path}: median relative error {error:.3g}")
        road = "unroll" if trained.model.cfg.is_linear_attention else _road(trained.metadata["task"])
        note(f"next: interp {road} {trained.path.parent}")


def _road(task: dict[str, Any]) -> str:
    """What to ask a model that has no rule."""
    return "compare" if task["family"] == "GaussianProcess" else "decode"


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.train_model RECIPE --out DIR …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
