"""A model of anyone's with its task: a foreign file, a checkpoint of ours, or the zoo; read where it answers."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from analyses.subject import FRESH
from interp.readout import Readout, find_readout
from models import checkpoints, foreign, zoo
from models.foreign import Foreign, TokenForm
from models.prompts import FAMILIES, PromptFamily, Prompts, family_from_dict
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Taken:
    """A model with the way prompts become its tokens, its task, and what its loader said."""

    name: str
    source: Foreign
    family: PromptFamily

    @property
    def model(self) -> HookedTransformer:
        return self.source.model

    def tokens(self, count: int, seed: int) -> tuple[torch.Tensor, Prompts]:
        """Fresh prompts as tokens, and with their targets."""
        prompts = self.family.sample(count, seed=FRESH + seed)
        return self.source.tokens(prompts).double(), prompts

    def answer(self, prompts: Prompts) -> torch.Tensor:
        return self.source.predict(prompts)


@dataclass(frozen=True)
class Prompted:
    """Tokens with targets, for `certify`."""

    tokens: torch.Tensor
    target: torch.Tensor


def take(
    path: str, layout: str | None = None, task: str | None = None, rows: int | None = None, format: str | None = None
) -> Taken:
    """The model of a foreign file, a checkpoint or the zoo, in float64, and its task.

    Args:
        layout: column blocks of a foreign file's tokens.
        task: a prompt family by name, of `rows` context rows (2 d if not given); None for what the checkpoint states.
        format: the loader of a foreign file; found if not given.

    Raises:
        ValueError: the file or an option is refused, or no task is stated.
    """
    source, family = _open(path, layout, format)
    source.model.double()
    if rows is not None and task is None:
        raise ValueError("--rows are the context rows of --task; give both, or neither for the task stated")
    if task is not None:
        if task not in FAMILIES:
            hint = "; give its name alone, and the rows with --rows" if "," in task else ""
            raise ValueError(f"unknown task {task!r}{hint}; known: {', '.join(FAMILIES)}")
        d = next(iter(source.layout.widths.values()))
        family = {"family": task, "n": 2 * d if rows is None else rows, "d": d}
    if family is None:
        raise ValueError(f"{path} states no task; give --task, one of {', '.join(FAMILIES)}, and --rows")
    taken = Taken(Path(path).name, source, family_from_dict(family))
    _check_width(taken)
    return taken


def _check_width(taken: Taken) -> None:
    """Raise if prompts of the task are no tokens of the model."""
    tokens, _ = taken.tokens(1, 0)
    if tokens.shape[-1] != taken.model.cfg.token_width:
        raise ValueError(
            f"tokens of {taken.family} have {tokens.shape[-1]} columns, and {taken.name} takes "
            f"{taken.model.cfg.token_width}, {taken.model.layout.widths}; give --layout or another --task"
        )


def _open(path: str, layout: str | None, format: str | None) -> tuple[Foreign, dict[str, Any] | None]:
    if path in zoo.names():
        _check_no_options(path, layout, format)
        return _ours(zoo.load(path), zoo.metadata(path))
    if not Path(path).exists() and not Path(f"{path}{checkpoints.RECORD}").exists():
        raise ValueError(f"there is no file {path}, and the models that ship are {', '.join(zoo.names())}")
    try:
        model, metadata = checkpoints.load(path), checkpoints.read_metadata(path)
    except checkpoints.CheckpointNotFoundError:
        return foreign.load(path, format, layout=layout), None
    _check_no_options(path, layout, format)
    return _ours(model, metadata)


def _check_no_options(path: str, layout: str | None, format: str | None) -> None:
    for name, given in {"--layout": layout, "--loader": format}.items():
        if given is not None:
            raise ValueError(
                f"{name} is for foreign files; {path} is a checkpoint of this package, which states its own"
            )


def _ours(model: HookedTransformer, metadata: Any) -> tuple[Foreign, dict[str, Any] | None]:
    """A checkpoint of ours, which may have been imported, with its task."""
    stated = metadata.get("tokens")
    basis = model.layout.basis
    plain = list(model.layout.widths) == ["x", "y"] and torch.equal(basis, torch.eye(len(basis)).to(basis))
    form = TokenForm.from_dict(stated) if stated else TokenForm() if plain else None
    notes = tuple(metadata.get("notes") or ())
    return Foreign(model, form, metadata.get("source") or {}, notes, None), metadata.get("task")


def with_readout(taken: Taken, count: int, seed: int) -> tuple[Readout | None, Taken, tuple[str, ...]]:
    """The read-out by search on `count` prompts, and the model that reads there if it is clear; as stated otherwise."""
    model = taken.model
    if model.cfg.d_out is not None:
        return None, taken, ("read-out: the model's own, learned",)
    tokens, prompts = taken.tokens(count, seed)
    found = find_readout(model, tokens, prompts.target, model.layout)
    if not found.clear:
        return found, taken, ("the read-out is kept as the layout states it, since the search is not clear",)
    layout = found.into()
    if (layout.readout, layout.sign) == (model.layout.readout, model.layout.sign):
        return found, taken, ()
    moved = HookedTransformer.from_weights(model.cfg, layout, model.state_dict())
    source = replace(taken.source, model=moved)
    stated = f"{'−' if model.layout.sign < 0 else '+'}{model.layout.readout}"
    said = f"the layout stated {stated}; from here on the model is read where it was found to answer"
    return found, Taken(taken.name, source, taken.family), (said,)
