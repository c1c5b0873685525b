"""The files of a training run: its recipe, its resumable state, its snapshots, and at the end the model.

DIR/NAME.safetensors, DIR/NAME.json      the trained model, once it is finished
DIR/run/run.json                         recipe and seed
DIR/run/state.safetensors                everything needed to go on
DIR/run/snapshots/step-NNNNNN.*          the model along training, each a checkpoint of its own
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from models import checkpoints
from models.training_settings import TrainingSettings
from models.transformer import HookedTransformer

State = dict[str, Tensor]


class RunError(ValueError):
    """A run's directory cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True)
class RunDirectory:
    """The directory of one run of a recipe with a seed. Open it with `start` or `resume`."""

    path: Path
    recipe: TrainingSettings
    seed: int

    @classmethod
    def start(cls, path: str | Path, recipe: TrainingSettings, seed: int) -> "RunDirectory":
        """Claim a directory for a new run.

        Raises:
            RunError: it holds another run or other files, or cannot be written.
        """
        run = cls(Path(path), recipe, seed)
        if run._description.exists():
            raise RunError(f"{path} already holds a run ({run._found()}); resume it or give another directory")
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise RunError(f"{path} is no empty directory; give a training run one of its own")
        write_atomically(run._description, json.dumps(run._identity(), indent=1, ensure_ascii=False).encode())
        return run

    @classmethod
    def resume(cls, path: str | Path, recipe: TrainingSettings, seed: int) -> "RunDirectory":
        """Go on with the run of a directory.

        Raises:
            RunError: there is none, or it is of another recipe or seed.
        """
        run = cls(Path(path), recipe, seed)
        if not run._description.exists():
            raise RunError(f"{path} holds no run to resume; start one without resuming")
        if run._read_description() != run._identity():
            raise RunError(
                f"{path} holds a run of {run._found()}, not of this recipe {recipe.name!r} with seed {seed}; "
                "give the same recipe and seed, or another directory"
            )
        return run

    @property
    def model_path(self) -> Path:
        return self.path / f"{self.recipe.name}{checkpoints.RECORD}"

    @property
    def is_finished(self) -> bool:
        return self.model_path.exists()

    def read_state(self) -> tuple[State, dict[str, Any]] | None:
        """The last state that was written, and the plain values that belong to it; None before the first."""
        if not self._state.exists():
            return None
        try:
            with safetensors.safe_open(self._state, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, json.loads((file.metadata() or {})["notes"])
        except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
            raise RunError(f"{self._state} is damaged ({error}); delete {self.path} and start again") from error

    def write_state(self, tensors: State, notes: Mapping[str, Any]) -> None:
        """Replace the state."""
        write_atomically(self._state, safetensors.torch.save(tensors, {"notes": json.dumps(notes)}))

    def write_snapshot(self, model: HookedTransformer, step: int, metadata: Mapping[str, Any]) -> None:
        """Keep the model as it is after `step` steps."""
        checkpoints.save(model, self.path / "run" / "snapshots", f"step-{step:06d}", metadata)

    def write_model(self, model: HookedTransformer, metadata: Mapping[str, Any]) -> None:
        """The end of the run."""
        checkpoints.save(model, self.path, self.recipe.name, metadata)

    @property
    def _description(self) -> Path:
        return self.path / "run" / "run.json"

    @property
    def _state(self) -> Path:
        return self.path / "run" / "state.safetensors"

    def _identity(self) -> dict[str, Any]:
        return {"recipe": self.recipe.to_dict(), "seed": self.seed}

    def _read_description(self) -> dict[str, Any]:
        try:
            return json.loads(self._description.read_bytes())
        except (OSError, ValueError) as error:
            raise RunError(f"{self._description} cannot be read ({error}); give another directory") from error

    def _found(self) -> str:
        """Which run the directory holds, for messages."""
        found = self._read_description()
        return f"recipe {found['recipe']['name']!r}, seed {found['seed']}"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file under a temporary name and rename it; nothing half-written stays.

    Raises:
        RunError: the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary.exists():
            temporary.unlink()
