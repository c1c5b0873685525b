"""The progress bar of a training run, on standard error."""

import math
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

SMOOTHING, EVERY = 50, 10


class Bar:
    """Steps done, the loss smoothed over some 50 steps, and what the callbacks said last. A context manager."""

    def __init__(self, title: str, steps: int, visible: bool) -> None:
        text = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
        console = Console(stderr=True)
        self.progress = Progress(*text, TimeRemainingColumn(), console=console, disable=not visible)
        self.task: TaskID = self.progress.add_task(title, total=steps, text="")
        self.steps, self.loss, self.notes = steps, math.nan, ""

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, step: int, loss: float) -> None:
        """Show a step and its loss."""
        if math.isnan(self.loss):
            self.loss = loss
        elif math.isfinite(loss):
            self.loss += (loss - self.loss) / SMOOTHING
        if step % EVERY == 0 or step == self.steps:
            self.progress.update(self.task, completed=step, text=f"loss {self.loss:.3g}{self.notes}")

    def note(self, entry: Mapping[str, float | None]) -> None:
        """Show what the callbacks said."""
        said = {name: value for name, value in entry.items() if name not in ("step", "loss") and value is not None}
        self.notes = "".join(f", {name} {value:.3g}" for name, value in said.items())
