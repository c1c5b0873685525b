"""What a file or directory of weights is, which loader takes it, and what the loader made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models import checkpoints
from models.foreign.contents import Contents, read_contents
from models.foreign.loading import find_format, load_contents
from models.foreign.tokens import TokenForm
from models.foreign.value import Foreign, ForeignError, Parity
from models.transformer import HookedTransformer

OWN = "checkpoint of this package"
SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".npz", ".safetensors")


@dataclass(frozen=True)
class Inspection:
    """One file, or one checkpoint of this package.

    Args:
        kind: by its first bytes: "torch", "pickle", "npz", "safetensors".
        format: the loader that takes it, or "checkpoint of this package"; None if none does.
        shapes: of the arrays in the file, by name.
        model: as a `HookedTransformer`; None if the loader refused it.
        problem: why there is no model, in a sentence.
    """

    path: Path
    kind: str
    format: str | None
    shapes: Mapping[str, list[int]]
    model: HookedTransformer | None = None
    form: TokenForm | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parity: Parity | None = None
    problem: str | None = None


def inspect(path: str | Path, format: str | None = None, **options: Any) -> list[Inspection]:
    """What lies at a path: one entry for a file, one a file for a directory.

    Raises:
        ForeignError: there is nothing to read there, or a single file is damaged, dangerous or no file of weights.
    """
    path = Path(path)
    if path.is_dir():
        return _directory(path)
    if not path.suffix and Path(f"{path}{checkpoints.RECORD}").is_file():
        path = Path(f"{path}{checkpoints.WEIGHTS}")
    if path.suffix in (checkpoints.WEIGHTS, checkpoints.RECORD) and path.with_suffix(checkpoints.RECORD).is_file():
        return [_own(path.with_suffix(checkpoints.WEIGHTS))]
    return [_foreign(read_contents(path), format, options)]


def _directory(path: Path) -> list[Inspection]:
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise ForeignError(f"{path} holds no file of weights: none ends in {', '.join(SUFFIXES)}")
    return [_try(file) for file in files]


def _try(path: Path) -> Inspection:
    """An entry of a directory: what is wrong with one file does not hide the others."""
    try:
        return inspect(path)[0]
    except ValueError as error:
        return Inspection(path, "unreadable", None, {}, problem=str(error))


def _own(path: Path) -> Inspection:
    model, metadata = checkpoints.load(path), checkpoints.read_metadata(path)
    shapes = {name: list(W.shape) for name, W in model.state_dict().items()}
    stated = metadata.get("tokens")
    form = None if stated is None else TokenForm.from_dict(stated)
    parity = metadata.get("parity")
    return Inspection(
        path,
        "safetensors",
        OWN,
        shapes,
        model,
        form,
        metadata.get("source") or {},
        tuple(metadata.get("notes") or ()),
        None if parity is None else Parity(**parity),
    )


def _foreign(contents: Contents, format: str | None, options: Mapping[str, Any]) -> Inspection:
    shapes = {name: list(array.shape) for name, array in contents.arrays.items() if hasattr(array, "shape")}
    found: str | None = None
    try:
        found = format or find_format(contents)
        made: Foreign = load_contents(contents, found, **options)
    except ValueError as error:
        source = contents.provenance(found or "none")
        return Inspection(contents.path, contents.kind, found, shapes, provenance=source, problem=str(error))
    return Inspection(
        contents.path, contents.kind, found, shapes, made.model, made.form, made.provenance, made.notes, made.parity
    )
