"""The model that a command is about: a zoo name or the path of a checkpoint, with the prompts it was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from interp import BlockLayout
from models import checkpoints, zoo
from models.foreign.tokens import ALTERNATING, TokenForm
from models.prompts import LogUniformSpectrum, PromptFamily, Prompts, family_from_dict
from models.training import pick_device
from models.transformer import HookedTransformer

FRESH = 1_000_000  # seeds of analyses start here, far from those of trainings and their evaluations


@dataclass(frozen=True)
class Subject:
    """A model, its name, its prompt family, and whether that family is stated by the checkpoint or assumed here."""

    name: str
    model: HookedTransformer
    family: PromptFamily
    stated: bool
    metadata: Mapping[str, Any]
    device: torch.device

    def prompts(self, count: int, seed: int, family: PromptFamily | None = None) -> Prompts:
        """Fresh prompts of the model's family, or of another, on the model's device."""
        drawn = (family or self.family).sample(count, seed=FRESH + seed, device=self.device)
        form = token_form(self.metadata)
        if form is not None:
            return replace(drawn, tokens=form(drawn))
        layout = self.model.layout
        blocks = {layout.readout: drawn.tokens[..., -drawn.d_out :], _inputs(layout): drawn.tokens[..., : -drawn.d_out]}
        rows = torch.cat([blocks[name] for name in layout.columns], dim=-1)
        return replace(drawn, tokens=rows @ layout.basis.T.to(rows))


def open_subject(reference: str, device: str = "cpu") -> Subject:
    """A zoo name, or a path to a checkpoint directory or file; the model on a device, its prompts too.

    Raises:
        ValueError: neither exists, the checkpoint is unusable, or the device has no float64.
    """
    chosen = pick_device(device)
    if chosen.type == "mps":
        raise ValueError("analyses run in float64, which the device mps does not have; give --device cpu or cuda")
    if reference in zoo.names():
        model, metadata, name = zoo.load(reference), zoo.metadata(reference), reference
    elif Path(reference).exists() or Path(f"{reference}{checkpoints.RECORD}").exists():
        model, metadata = checkpoints.load(reference), checkpoints.read_metadata(reference)
        name = Path(reference).name.removesuffix(checkpoints.RECORD).removesuffix(checkpoints.WEIGHTS)
    else:
        raise ValueError(
            f"unknown model {reference!r}: no file of that name, and the models that ship are {', '.join(zoo.names())}"
        )
    task = metadata.get("task")
    form = token_form(metadata)
    family = family_from_dict(task) if task else assumed_family(model, form)
    check_family(family, model, form)
    return Subject(name, model.to(chosen), family, bool(task), metadata, chosen)


def token_form(metadata: Mapping[str, Any]) -> TokenForm | None:
    """How prompts become tokens, where the checkpoint of an imported model says it."""
    stated = metadata.get("tokens")
    return None if stated is None else TokenForm.from_dict(stated)


def check_family(family: PromptFamily, model: HookedTransformer, form: TokenForm | None) -> None:
    """Raise if prompts of the family are not what the model takes."""
    if form is None:
        return _check_fit(family, model.layout)
    answered = model.cfg.d_out if model.cfg.d_out is not None else model.layout.widths[model.layout.readout]
    if answered != family.widths[1]:
        raise ValueError(
            f"the task has {family.widths[1]} label columns and the model answers with {answered}, "
            f"{model.layout.readout}; state a read-out of as many, as in x=10,y=1,position=5,answer=1,readout=answer"
        )
    found, expected = form.width(*family.widths), model.cfg.token_width
    if found != expected or family.queries != model.layout.n_query:
        raise ValueError(
            f"the task's {family.widths[0]} input columns, {family.widths[1]} label columns and {family.queries} query "
            f"rows make tokens of {found} columns, {form.name}, and the model takes {expected} columns and "
            f"{model.layout.n_query} query rows; give the task it was trained on"
        )


def check_pairs(model: HookedTransformer, form: TokenForm | None) -> None:
    """Raise unless a row of the prompt holds an input and its label, as decoding and probing take it."""
    widths = model.layout.widths
    if (form is not None and form.name == ALTERNATING) or len(widths) < 2:
        raise ValueError(
            f"the model's tokens hold an input or a label, never both (blocks {widths}), and this analysis takes rows "
            "of both; its activations can be read from Python with interp.hooks.capture"
        )


def _inputs(layout: BlockLayout) -> str:
    """The block of the inputs: the one that is not read out."""
    return next(name for name in layout.columns if name != layout.readout)


def _check_fit(family: PromptFamily, layout: BlockLayout) -> None:
    """Raise if prompts of the family cannot be rows of the layout."""
    x, y = family.widths
    own = {name: width for name, width in layout.widths.items() if name != layout.readout}
    if list(own.values()) != [x] or layout.widths[layout.readout] != y or layout.n_query != family.queries:
        raise ValueError(
            f"the checkpoint's task has {x} input columns, {y} label columns and {family.queries} query rows, and its "
            f"layout the blocks {layout.widths}, {layout.readout} read out, and {layout.n_query} query rows; mend "
            "the one that is wrong, or use unroll and certify from Python"
        )


def assumed_family(model: HookedTransformer, form: TokenForm | None = None) -> PromptFamily:
    """Prompts for a checkpoint that does not say what it was trained on: log-uniform spectra, κ = 10, 2 d rows."""
    layout = model.layout
    if form is not None and "x" in layout.widths:
        d, d_out = layout.widths["x"], layout.widths.get("y", 1)
        n = 2 * d if model.cfg.n_ctx is None else min(2 * d, (model.cfg.n_ctx - 1) // 2)
        return LogUniformSpectrum(n=n, d=d, n_query=layout.n_query, d_out=d_out, kappa=10.0)
    if len(layout.columns) != 2:
        raise ValueError(
            f"the checkpoint states no task, and none can be assumed for the column blocks {layout.widths}; "
            'store one as metadata {"task": family.to_dict()}'
        )
    d_out = layout.widths[layout.readout]
    d = layout.d_model - d_out
    return LogUniformSpectrum(n=2 * d * layout.machines, d=d, n_query=layout.n_query, d_out=d_out, kappa=10.0)
