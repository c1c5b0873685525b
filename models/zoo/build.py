"""Train the seeds of a recipe and ship the best: `python -m models.zoo.build eagle-d10 --runs runs`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models import checkpoints
from models.packs import write_pack
from models.recipes import RECIPES, recipe
from models.training import TrainedModel, train
from models.training_settings import TrainingSettings
from models.transformer import HookedTransformer
from models.zoo import DIRECTORY, SEEDS, SNAPSHOTS

DEFAULT_SEEDS = (0, 1, 2)
FOLLOWED = ("eagle-d10",)
"""The recipes whose shipped run is kept step by step."""


def build(
    chosen: TrainingSettings,
    runs: Path,
    *,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    target: Path = DIRECTORY,
    device: str = "auto",
    progress: bool = True,
) -> Path:
    """Train every seed under `runs` (going on with runs that are there), and save the best in `target`.

    The best has the smallest error of its own evaluation (see `merit`). The results of all seeds are stored with it,
    their weights in a pack, and for the recipes `FOLLOWED` another pack holds the best one's run step by step.
    """
    trained = [_train(chosen, runs / chosen.name / f"seed-{seed}", seed, device, progress) for seed in seeds]
    best = min(trained, key=lambda result: merit(chosen, result.metadata))
    results = [summary(result.metadata) | {"shipped": result is best} for result in trained]
    write_pack(target / SEEDS / f"{chosen.name}.safetensors", dict(zip(seeds, (r.model for r in trained), strict=True)))
    if chosen.name in FOLLOWED:
        write_pack(target / SNAPSHOTS / f"{chosen.name}.safetensors", snapshots_of(best.path.parent))
    return checkpoints.save(best.model, target, chosen.name, best.metadata | {"seeds": results})


def snapshots_of(run: Path) -> dict[int, HookedTransformer]:
    """The models that a run kept, by step."""
    kept = run / "run" / "snapshots"
    return {int(name.removeprefix("step-")): checkpoints.load(kept / name) for name in checkpoints.names(kept)}


def merit(chosen: TrainingSettings, metadata: dict[str, Any]) -> float:
    """The error by which seeds are compared (see the recipe's `merit`); infinite if it was not finite."""
    error = chosen.merit(metadata["metrics"])
    return float("inf") if error is None else error


def summary(metadata: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a seed."""
    return {name: metadata[name] for name in ("seed", "metrics", "training")}


def _train(chosen: TrainingSettings, directory: Path, seed: int, device: str, progress: bool) -> TrainedModel:
    started = (directory / "run").exists()
    return train(chosen, directory, resume=started, device=device, seed=seed, progress=progress)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help=f"recipes: {', '.join(RECIPES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are kept (default: runs)")
    parser.add_argument("--seeds", type=int, nargs="+", default=DEFAULT_SEEDS)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(argv)
    for name in options.names:
        print(build(recipe(name), options.runs, seeds=options.seeds, device=options.device))


if __name__ == "__main__":
    main()
