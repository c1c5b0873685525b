"""Trained models that ship with the package: NAME.safetensors and NAME.json beside this file.

The other seeds of each recipe lie in seeds/NAME.safetensors, and for some the run along its steps in
snapshots/NAME.safetensors. `python -m models.zoo.build NAME` trains all of it again.
"""

from pathlib import Path
from typing import Any

import torch

from models import checkpoints
from models.packs import read_pack
from models.prompts import PromptFamily, Prompts, family_from_dict
from models.transformer import HookedTransformer

DIRECTORY = Path(__file__).parent
SEEDS, SNAPSHOTS = "seeds", "snapshots"


def names() -> list[str]:
    """The models that ship."""
    return checkpoints.names(DIRECTORY)


def load(name: str) -> HookedTransformer:
    """A model that ships, in float32 on the CPU.

    Raises:
        ValueError: no model has that name; the message lists those that exist.
    """
    return checkpoints.load(_path(name))


def metadata(name: str) -> dict[str, Any]:
    """What is known about a model: `task`, `recipe`, `seed`, `prior`, `metrics`, `history`, `training`, and under
    `seeds` the metrics of every seed that was trained, the shipped one marked."""
    return checkpoints.read_metadata(_path(name))


def seeds(name: str) -> dict[int, HookedTransformer]:
    """All trained seeds of a model's recipe, by seed; the one that `load` gives is among them."""
    return read_pack(DIRECTORY / SEEDS / f"{name}.safetensors", load(name))


def snapshots(name: str) -> dict[int, HookedTransformer]:
    """The shipped model along its training, by step, from the initial weights (0) to the last.

    Raises:
        ValueError: the model has no snapshots; the message lists those that have.
    """
    path = DIRECTORY / SNAPSHOTS / f"{name}.safetensors"
    model = load(name)
    if not path.exists():
        raise ValueError(f"no snapshots of {name!r} ship; of these they do: {', '.join(with_snapshots())}")
    return read_pack(path, model)


def with_snapshots() -> list[str]:
    """The models whose training ships step by step."""
    return checkpoints.names(DIRECTORY / SNAPSHOTS)


def family(name: str) -> PromptFamily:
    """The prompts that a model was trained on."""
    return family_from_dict(metadata(name)["task"])


def prompts(
    name: str,
    count: int,
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Prompts:
    """`count` prompts of the kind that a model was trained on."""
    return family(name).sample(count, seed=seed, dtype=dtype, device=device)


def _path(name: str) -> Path:
    if name not in names():
        raise ValueError(f"unknown model {name!r}; known: {', '.join(names())}")
    return DIRECTORY / f"{name}{checkpoints.RECORD}"
