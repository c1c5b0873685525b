"""The training loop: recipes in, checkpoints out, resumable at any moment."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models import checkpoints
from models.evaluation import evaluate
from models.progress import Bar
from models.recipes import recipe as recipe_by_name
from models.runs import RunDirectory
from models.seeds import derived_seed
from models.trainer import EVALUATION, Trainer
from models.training_settings import TrainingSettings
from models.transformer import HookedTransformer

SAVE_SECONDS = 20
SNAPSHOTS = 24

Callback = Callable[[int, HookedTransformer, float], Mapping[str, float] | None]
"""Called as callback(step, model, loss) at every snapshot. The numbers it returns, such as a structure distance, are
shown in the progress bar and kept in the history (what is not finite as None)."""
Entry = dict[str, Any]
"""What the history holds of a snapshot: the step, the loss of its batch, and what the callbacks said."""


@dataclass(frozen=True)
class TrainedModel:
    """The end of a run: the model, what is stored beside it, and where."""

    model: HookedTransformer
    metadata: dict[str, Any]
    path: Path


def train(
    recipe: TrainingSettings | str,
    directory: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    seed: int = 0,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> TrainedModel:
    """Train a recipe and leave the model in `directory`.

    The state is written every 20 seconds, so at most that much work is lost to a kill; resumed on a CPU, the run ends
    in the same weights, bit for bit. A non-finite step goes back to the last good state and halves the rate.

    Args:
        recipe: a recipe (`Recipe`, `TransformerRecipe`), or the name of one.
        directory: an empty or new directory; with `resume`, that of the run to go on with.
        device: "auto" (CUDA, then MPS, then CPU) or a torch device.
        seed: of the initial weights, the prompts and the evaluation.
        progress: show a bar on standard error.
        callbacks: see `Callback`.

    Raises:
        ValueError: an unknown recipe or device, a directory that holds something else, a disk that refuses, or a
            recipe that diverges.
    """
    recipe = recipe_by_name(recipe) if isinstance(recipe, str) else recipe
    trainer = Trainer(recipe, seed, pick_device(device))
    run = (RunDirectory.resume if resume else RunDirectory.start)(directory, recipe, seed)
    if run.is_finished:
        return TrainedModel(checkpoints.load(run.model_path), checkpoints.read_metadata(run.model_path), run.model_path)
    loop = _Loop(run, trainer, callbacks)
    loop.restore()
    with Bar(f"{recipe.name}, seed {seed}", recipe.steps, progress) as bar:
        loop.run_to_end(bar)
    return _finish(run, trainer, loop)


def pick_device(name: str) -> torch.device:
    """The device of a name; "auto" is CUDA, then MPS, then CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {name!r} cannot be used here; give auto, cpu, cuda or mps") from error


def snapshot_steps(steps: int) -> list[int]:
    """The steps at which the model is kept: 0, then evenly spaced in the logarithm, the last step included."""
    return sorted({0, *(round(steps ** (i / (SNAPSHOTS - 1))) for i in range(SNAPSHOTS))})


class _Loop:
    """Steps, with snapshots at set steps and the state written by the clock."""

    def __init__(self, run: RunDirectory, trainer: Trainer, callbacks: Sequence[Callback]) -> None:
        self.run, self.trainer, self.callbacks = run, trainer, callbacks
        self.history: list[Entry] = []
        self.loss, self.seconds = float("nan"), 0.0
        self.clock = time.monotonic()

    def restore(self) -> None:
        """Go on from the run's state, if it has one."""
        stored = self.run.read_state()
        if stored is not None:
            state, notes = stored
            self.trainer.restore(state)
            self.history, self.seconds = notes["history"], notes["seconds"]
            self.loss = float("nan") if notes["loss"] is None else notes["loss"]

    def run_to_end(self, bar: Bar) -> None:
        steps = self.trainer.recipe.steps
        marks = set(snapshot_steps(steps))
        try:
            while True:
                if self.trainer.step in marks:
                    self._record(bar)
                if self.trainer.step >= steps:
                    return
                self.loss = self.trainer.advance()
                bar.update(self.trainer.step, self.loss)
                if time.monotonic() - self.clock > SAVE_SECONDS:
                    self._save()
        finally:
            self._save()

    def _record(self, bar: Bar) -> None:
        """Keep the model and ask the callbacks; what a rollback took back is forgotten."""
        step, model = self.trainer.step, self.trainer.model()
        entry: Entry = {"step": step} | ({} if math.isnan(self.loss) else {"loss": self.loss})
        for callback in self.callbacks:
            said = callback(step, model, self.loss) or {}
            entry |= {name: value if math.isfinite(value) else None for name, value in said.items()}
        self.run.write_snapshot(model, step, {"task": self.run.recipe.family.to_dict(), **entry})
        self.history = [*(earlier for earlier in self.history if earlier["step"] < step), entry]
        bar.note(entry)

    def _save(self) -> None:
        now = time.monotonic()
        self.seconds, self.clock = self.seconds + now - self.clock, now
        loss = None if math.isnan(self.loss) else self.loss
        notes = {"history": self.history, "seconds": self.seconds, "loss": loss}
        self.run.write_state(self.trainer.state(), notes)


def _finish(run: RunDirectory, trainer: Trainer, loop: _Loop) -> TrainedModel:
    """Evaluate on fresh prompts and write the model."""
    model = trainer.model()
    evaluation = evaluate(model, run.recipe.family, seed=derived_seed(run.seed, EVALUATION))
    metadata = {
        "task": run.recipe.family.to_dict(),
        "recipe": run.recipe.to_dict(),
        "seed": run.seed,
        "prior": run.recipe.prior,
        "metrics": evaluation.to_dict(),
        "history": loop.history,
        "training": {"device": str(trainer.device), "rollbacks": trainer.rollbacks, "seconds": round(loop.seconds, 1)},
    }
    run.write_model(model, metadata)
    return TrainedModel(model, metadata, run.model_path)
