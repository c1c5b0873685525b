"""Packs: several models of one architecture in one file, such as all seeds of a recipe or one run along its steps."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from models.checkpoints import CheckpointError
from models.runs import write_atomically
from models.transformer import HookedTransformer


def write_pack(path: Path, models: Mapping[int, HookedTransformer]) -> None:
    """Write models by number. They must share config and layout, which a pack does not hold.

    Raises:
        CheckpointError: no model was given, or they differ in more than weights.
        RunError: the disk refuses.
    """
    first = next(iter(models.values()), None)
    if first is None or any(model.cfg != first.cfg or model.layout != first.layout for model in models.values()):
        raise CheckpointError(f"{path}: a pack takes one or more models of one config and layout, got {len(models)}")
    tensors = {
        f"{number}/{name}": tensor.detach().cpu().contiguous().clone()
        for number, model in models.items()
        for name, tensor in model.state_dict().items()
    }
    write_atomically(path, safetensors.torch.save(tensors, {"sha256": digest(tensors)}))


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names and bytes of the tensors, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()


def read_pack(path: Path, like: HookedTransformer) -> dict[int, HookedTransformer]:
    """The models of a pack by number, in rising order, with the config and layout of `like`.

    Raises:
        CheckpointError: the file is missing or damaged (its SHA-256 is checked), or of another architecture.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            stored = (file.metadata() or {}).get("sha256")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if digest(tensors) != stored:
            raise ValueError("its SHA-256 is not that of its weights")
        weights: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            number, _, weight = name.partition("/")
            weights.setdefault(int(number), {})[weight] = tensor
        return {
            number: HookedTransformer.from_weights(like.cfg, like.layout, weights[number]) for number in sorted(weights)
        }
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path} is no pack of such models: {error}; restore it") from error
