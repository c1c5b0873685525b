"""Checkpoints: NAME.safetensors (weights) beside NAME.json (architecture, layout, metadata, versions, SHA-256).

Both files are written completely to temporary files and then renamed, weights first. Loading checks the hash, the
names, the shapes and the values of the weights; nothing is ever unpickled.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.provenance import git_revision, library_versions
from models.transformer import HookedTransformer

FORMAT = 1
WEIGHTS, RECORD = ".safetensors", ".json"
_FIELDS = {"format": int, "architecture": dict, "layout": dict, "metadata": dict, "versions": dict, "sha256": str}


class CheckpointError(ValueError):
    """A checkpoint cannot be written or read; the message says which file, what is wrong and how to mend it."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at the path."""


def save(model: HookedTransformer, directory: str | Path, name: str, metadata: Mapping[str, Any] | None = None) -> Path:
    """Write the model as NAME.safetensors and NAME.json; the path of the latter.

    An earlier checkpoint of that name is replaced. If anything fails, no new file stays.

    Raises:
        CheckpointError: the name is no file name, a weight is not finite or does not belong to the config, the metadata
            is no JSON, or the disk refuses.
    """
    if not name or name.startswith(".") or Path(name).name != name:
        raise CheckpointError(f"a checkpoint needs a plain file name without a path or a leading dot, got {name!r}")
    weights = _weights_to_bytes(model)
    record = _record_to_bytes(model, dict(metadata or {}), hashlib.sha256(weights).hexdigest())
    base = Path(directory) / name
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(base, weights) as new_weights, _temporary(base, record) as new_record:
            _rename(base, new_weights, new_record)
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {base}: {error.strerror or error}") from error
    return Path(f"{base}{RECORD}")


def load(path: str | Path) -> HookedTransformer:
    """The model of a checkpoint: a directory that holds one, or NAME.json, NAME.safetensors or NAME of it.

    Raises:
        CheckpointError: anything about the checkpoint is wrong; see the message.
    """
    base = _locate(Path(path))
    record = _read_record(base)
    data = _read(Path(f"{base}{WEIGHTS}"))
    if hashlib.sha256(data).hexdigest() != record["sha256"]:
        raise CheckpointError(
            f"{base}{WEIGHTS} is not the file that {base.name}{RECORD} was written for (its SHA-256 differs): "
            "it is truncated or was altered; restore it"
        )
    try:
        weights = safetensors.torch.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{base}{WEIGHTS} is not a safetensors file: {error}") from error
    return _build(base, record, weights)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata that was given to `save`."""
    return read_record(path)["metadata"]


def read_record(path: str | Path) -> dict[str, Any]:
    """The whole of NAME.json: format, architecture, layout, metadata, versions, git_revision, sha256."""
    return _read_record(_locate(Path(path)))


def names(directory: str | Path) -> list[str]:
    """The checkpoints in a directory."""
    return sorted(file.name.removesuffix(WEIGHTS) for file in Path(directory).glob(f"[!.]*{WEIGHTS}"))


def _weights_to_bytes(model: HookedTransformer) -> bytes:
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    try:
        HookedTransformer.from_weights(model.cfg, model.layout, weights)
    except ValueError as error:
        raise CheckpointError(f"the model is not saved, as it could not be loaded again: {error}") from error
    return safetensors.torch.save(weights)


def _record_to_bytes(model: HookedTransformer, metadata: dict[str, Any], sha256: str) -> bytes:
    record = {
        "format": FORMAT,
        "architecture": model.cfg.to_dict(),
        "layout": model.layout.to_dict(),
        "metadata": metadata,
        "versions": library_versions(),
        "git_revision": git_revision(),
        "sha256": sha256,
    }
    try:
        return (json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the metadata cannot be written as JSON: {error}") from error


def _rename(base: Path, new_weights: Path, new_record: Path) -> None:
    os.replace(new_weights, f"{base}{WEIGHTS}")
    try:
        os.replace(new_record, f"{base}{RECORD}")
    except BaseException:
        os.unlink(f"{base}{WEIGHTS}")
        raise


@contextmanager
def _temporary(base: Path, data: bytes) -> Iterator[Path]:
    """A complete file beside the checkpoint, gone at the end unless it was renamed."""
    path = base.with_name(f".{base.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _locate(path: Path) -> Path:
    """The path of the checkpoint without its suffix."""
    if path.is_dir():
        base = path / _only_name(path)
    else:
        base = path.with_suffix("") if path.suffix in (WEIGHTS, RECORD) else path
    for suffix in (WEIGHTS, RECORD):
        if not Path(f"{base}{suffix}").is_file():
            raise CheckpointNotFoundError(f"there is no checkpoint {base}: the file {base.name}{suffix} is missing")
    return base


def _only_name(directory: Path) -> str:
    found = names(directory)
    if not found:
        raise CheckpointNotFoundError(f"{directory} holds no weights: there is no NAME{WEIGHTS} in it")
    if len(found) > 1:
        raise CheckpointError(f"{directory} holds {len(found)} checkpoints, give one of them: {', '.join(found)}")
    return found[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def _read_record(base: Path) -> dict[str, Any]:
    path = Path(f"{base}{RECORD}")
    try:
        record = json.loads(_read(path).decode())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(record).__name__}")
    for name, kind in _FIELDS.items():
        if not isinstance(record.get(name), kind):
            raise CheckpointError(f"{path} has no entry {name!r} of type {kind.__name__}")
    if record["format"] != FORMAT:
        raise CheckpointError(f"{path} is of format {record['format']}, and this version reads format {FORMAT}")
    return record


def _build(base: Path, record: Mapping[str, Any], weights: Mapping[str, Tensor]) -> HookedTransformer:
    try:
        cfg = TransformerConfig.from_dict(record["architecture"])
        layout = BlockLayout.from_dict(record["layout"])
        return HookedTransformer.from_weights(cfg, layout, weights)
    except ValueError as error:
        raise CheckpointError(f"the checkpoint {base} does not hold together: {error}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"{base}{RECORD}: the architecture or the layout is malformed ({error!r})") from error
