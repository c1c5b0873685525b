"""Ablate a model: swap kernels, replace heads, MLPs and layers, leave early, remove a word; effects beside the clean
value."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from torch import Tensor

from analyses.ablation_alignment import Alignment, alignment
from analyses.compare_model import process_of, widened
from analyses.subject import FRESH, Subject, open_subject
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp.ablation import (
    MODES,
    Ablation,
    Intervention,
    Reference,
    WordAblation,
    ablate,
    ablate_head,
    ablate_layer,
    ablate_mlp,
    ablate_word,
    everything,
    exits,
    kernel_swaps,
)
from interp.gaussian_process import posterior
from models.prompts import GaussianProcess, Prompts


@dataclass(frozen=True)
class Config:
    """What is ablated. With neither kernel, head, mlp, skip, exit nor word: everything but words.

    Args:
        kernels: names of kernels, each put in all of `layers` at once and in each of them alone.
        layers, heads: of the kernel swaps, the MLPs and the word; None for all.
        rescale: match the norms of the swapped heads' outputs.
        head: single heads as (layer, head).
        mlp, exit: ablate MLPs; read out at every depth.
        skip: whole layers.
        word: "conditioning", "step" or the text of a word of the rule.
        modes: what heads, MLPs and layers are replaced by.
        alignment: measure the distance of the layers from each solver of kernel ridge regression, too.
    """

    model: str
    kernels: tuple[str, ...] = ()
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    rescale: bool = False
    head: tuple[tuple[int, int], ...] = ()
    mlp: bool = False
    skip: tuple[int, ...] = ()
    exit: bool = False
    word: str | None = None
    modes: tuple[str, ...] = MODES
    alignment: bool = False
    prompts: int = 256
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.prompts < 2:
            raise ValueError(f"prompts={self.prompts} must be at least 2: intervals and resampling need another")
        if unknown := [mode for mode in self.modes if mode not in MODES]:
            raise ValueError(f"unknown mode {unknown[0]!r}; known: {', '.join(MODES)}")
        if self.rescale and not self.kernels:
            raise ValueError("--rescale matches the norms of a kernel swap; name a kernel with --kernel")
        if self.heads is not None and not self.kernels:
            raise ValueError("--heads says where a kernel is swapped; name one with --kernel, or use --head LAYER.HEAD")
        if self.layers is not None and not (self.kernels or self.mlp or self.word):
            raise ValueError("--layers says where kernels, MLPs or a word are ablated; add --kernel, --mlp or --word")
        if self.alignment and not self.has_interventions:
            raise ValueError("--alignment takes a few seconds an intervention; name some, such as --kernel linear")

    @property
    def only_word(self) -> bool:
        return self.word is not None and not self.has_interventions

    @property
    def has_interventions(self) -> bool:
        return bool(self.kernels or self.head or self.mlp or self.skip or self.exit)


@dataclass(frozen=True)
class Ablated:
    """The answer for one model."""

    subject: Subject
    ablation: Ablation | None
    word: WordAblation | None
    alignment: Alignment | None = None

    def __str__(self) -> str:
        assumed = "" if self.subject.stated else " (assumed: the checkpoint states no task)"
        parts = [f"{self.subject.name}\nprompts: {self.subject.family}{assumed}"]
        found = (self.ablation, self.alignment, self.word)
        return "\n\n".join([*parts, *(str(part) for part in found if part is not None)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "task": {**self.subject.family.to_dict(), "stated_by_checkpoint": self.subject.stated},
            "ablation": None if self.ablation is None else self.ablation.to_dict(),
            "alignment": None if self.alignment is None else self.alignment.to_dict(),
            "word": None if self.word is None else self.word.to_dict(),
        }


def run(config: Config) -> Ablated:
    """Load, draw prompts, ablate."""
    subject = open_subject(config.model, config.device)
    subject.model.double()
    if config.alignment:
        process_of(subject)  # refuses what has no kernel system before anything is measured
    prompts = subject.prompts(config.prompts, 3 * config.seed)
    word = None if config.word is None else ablate_word(subject.model, prompts, config.word, config.layers)
    if config.only_word:
        return Ablated(subject, None, word)
    reference = subject.prompts(config.prompts, 3 * config.seed + 1).tokens
    interventions = plan(config, subject.model, prompts.tokens, reference)
    krr = kernel_ridge(subject, prompts)
    found = ablate(subject.model, prompts, interventions, krr=krr, seed=config.seed)
    return Ablated(subject, found, word, aligned(config, subject) if config.alignment else None)


def aligned(config: Config, subject: Subject) -> Alignment:
    """The interventions again, in the model with several queries a prompt that probes are fitted in."""
    model, family = widened(subject.model, process_of(subject))
    draw = (family.sample(config.prompts, seed=FRESH + part, device=subject.device).tokens for part in range(2))
    return alignment(subject, model, family, plan(config, model, *draw), config.seed)


def plan(config: Config, model: Any, tokens: Tensor, reference: Tensor) -> list[Intervention]:
    """The interventions that a Config asks for."""
    if not config.has_interventions:
        return everything(model, tokens, reference=reference, modes=config.modes, seed=config.seed)
    source, modes = Reference.of(model, tokens, reference, config.seed), config.modes
    found: list[Intervention] = []
    if config.kernels:
        options = {"rescale": config.rescale, "reference": reference}
        found += kernel_swaps(model, config.kernels, config.layers, config.heads, **options)
    found += [ablate_head(source, layer, [head], mode) for layer, head in config.head for mode in modes]
    if config.mlp:
        where = range(model.cfg.n_layers) if config.layers is None else config.layers
        found += [ablate_mlp(source, [layer], mode) for layer in where for mode in modes]
    found += [ablate_layer(source, [layer], mode) for layer in config.skip for mode in modes]
    return found + (exits(model) if config.exit else [])


def kernel_ridge(subject: Subject, prompts: Prompts) -> Tensor | None:
    """The best answers to the prompts, where they are of a Gaussian process."""
    family = subject.family
    if not isinstance(family, GaussianProcess):
        return None
    return posterior(family.kernel, family.lam, prompts.A, prompts.C, prompts.B).mean


def numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    """ "0,2" as numbers.

    Raises:
        ValueError: something in it is no whole number, or there is none.
    """
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"{option} {text!r} must be whole numbers with commas between, such as 0,2") from error
    if not found:
        raise ValueError(f"{option} is empty; name at least one, such as {option} 0,2, or leave it out for all")
    return found


def place(text: str) -> tuple[int, int]:
    """ "1.0" as layer 1, head 0."""
    layer, dot, head = text.partition(".")
    if not (dot and layer.isdecimal() and head.isdecimal()):
        raise ValueError(f"--head {text!r} must be LAYER.HEAD, such as 1.0 for head 0 of layer 1")
    return int(layer), int(head)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    kernel: Annotated[list[str] | None, typer.Option(help="Kernel to put in; may be repeated.")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers of kernel swaps, MLPs and word, as in 0,2.")] = None,
    heads: Annotated[str | None, typer.Option(help="Heads whose kernel is swapped, as in 0,1.")] = None,
    rescale: Annotated[bool, typer.Option("--rescale", help="Match the norms of swapped heads' outputs.")] = False,
    head: Annotated[list[str] | None, typer.Option(help="A head to replace, LAYER.HEAD; may be repeated.")] = None,
    mlp: Annotated[bool, typer.Option("--mlp", help="Replace MLPs.")] = False,
    skip: Annotated[str | None, typer.Option(help="Layers to replace as a whole, as in 0,2.")] = None,
    exit: Annotated[bool, typer.Option("--exit", help="Read out at every depth.")] = False,
    word: Annotated[str | None, typer.Option(help="Word of a linear rule to remove: conditioning, step, …")] = None,
    mode: Annotated[list[str] | None, typer.Option(help="zero, mean or resample; may be repeated.")] = None,
    alignment: Annotated[bool, typer.Option("--alignment", help="Distances from solvers, on other prompts.")] = False,
    prompts: Annotated[int, typer.Option(help="Prompts; as many others serve for means and donors.")] = Config.prompts,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the effects to this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of prompts and donors.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Swap kernels, replace heads, MLPs and layers, leave early or remove a word. Without a choice: all but words."""
    config = Config(
        model,
        tuple(kernel or ()),
        numbers("--layers", layers),
        numbers("--heads", heads),
        rescale,
        tuple(place(text) for text in head or ()),
        mlp,
        numbers("--skip", skip) or (),
        exit,
        word,
        tuple(mode) if mode else MODES,
        alignment,
        prompts,
        seed,
        device,
    )
    result = run(config)
    if figure is not None:
        from analyses.ablation_figures import draw_ablation, draw_word

        if result.ablation is not None:
            draw_ablation(result.ablation, result.subject.name, figure)
        elif result.word is not None:
            draw_word(result.word, result.subject.name, figure)
        note(f"figure: {figure}")
    write_or_print(to_json(result.to_dict()) if format == "json" else str(result), out)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.ablate_model MODEL --kernel …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
