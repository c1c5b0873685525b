"""The whole ablation suite on one model, prepared for a GPU: kernels × layers, heads, MLPs, layers and early exits.

`python -m analyses.ablation_suite MODEL --device cuda --out DIR` writes DIR/rows.jsonl row by row as they are measured,
so that nothing finished is lost if it is interrupted, then DIR/ablation.json, DIR/ablation.txt and the figures.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from analyses.ablate_model import kernel_ridge
from analyses.ablation_figures import draw_ablation
from analyses.subject import Subject, open_subject
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp.ablation import Ablation, Row, ablate, everything
from models.prompts import PromptFamily


@dataclass(frozen=True)
class Config:
    """Which model, where, and how large.

    Args:
        out: the directory of the results; made if it is missing.
        device: "auto" is a GPU where there is one.
        prompts: 4096 fill a GPU; a few are enough to try the script.
        length: context rows; None for those the model was trained on. A model with learned positions has no others.
    """

    model: str
    out: Path
    device: str = "auto"
    prompts: int = 4096
    length: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.prompts < 2:
            raise ValueError(f"prompts={self.prompts} must be at least 2: intervals and resampling need another")
        if self.length is not None and self.length < 1:
            raise ValueError(f"length={self.length} must be at least 1 context row")


@dataclass(frozen=True)
class Suite:
    """What was measured, and in how many seconds."""

    subject: Subject
    config: Config
    ablation: Ablation
    seconds: float

    def __str__(self) -> str:
        return f"{self.subject.name} on {self.subject.device}, {self.seconds:.1f} s\n{self.ablation}"

    def to_dict(self) -> dict[str, Any]:
        config = {**asdict(self.config), "out": str(self.config.out)}
        return {
            "config": config,
            "device": str(self.subject.device),
            "torch": torch.__version__,
            "seconds": self.seconds,
            **self.ablation.to_dict(),
        }


def run(config: Config) -> Suite:
    """Load, draw, ablate; every row is written when it is measured."""
    subject = open_subject(config.model, config.device)
    subject.model.double()
    family = lengthened(subject.family, config.length)
    prompts = subject.prompts(config.prompts, 3 * config.seed, family)
    reference = subject.prompts(config.prompts, 3 * config.seed + 1, family).tokens
    config.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    interventions = everything(subject.model, prompts.tokens, reference=reference, seed=config.seed)
    with (config.out / "rows.jsonl").open("w", encoding="utf-8") as file:

        def write(row: Row) -> None:
            file.write(json.dumps(json.loads(to_json(row.to_dict())), ensure_ascii=False) + "\n")
            file.flush()

        krr = kernel_ridge(replace(subject, family=family), prompts)
        ablation = ablate(subject.model, prompts, interventions, krr=krr, seed=config.seed, on_row=write)
    return Suite(subject, config, ablation, time.perf_counter() - start)


def lengthened(family: PromptFamily, length: int | None) -> PromptFamily:
    """The family with another number of context rows.

    Raises:
        ValueError: the family does not state one.
    """
    if length is None:
        return family
    if "n" not in {entry.name for entry in fields(family)}:
        raise ValueError(f"prompts of {type(family).__name__} have no length to change; leave --length out")
    return replace(family, **{"n": length})


def save(suite: Suite, out: Path) -> None:
    """JSON, table and a figure for each metric."""
    write_or_print(to_json(suite.to_dict()), out / "ablation.json")
    write_or_print(str(suite), out / "ablation.txt")
    for metric in suite.ablation.clean:
        draw_ablation(suite.ablation, suite.subject.name, out / f"{metric.replace(' ', '-').lower()}.png", metric)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    out: Annotated[Path, typer.Option(help="Directory of the results.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    prompts: Annotated[int, typer.Option(help="Prompts; as many others serve as reference.")] = Config.prompts,
    length: Annotated[int | None, typer.Option(help="Context rows of a prompt.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of prompts and donors.")] = 0,
) -> None:
    """The whole ablation suite: figures, a table and JSON in a directory."""
    suite = run(Config(model, out, device, prompts, length, seed))
    save(suite, out)
    note(f"{suite.seconds:.1f} s on {suite.subject.device}; results in {out}")


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.ablation_suite MODEL --device cuda --out DIR`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
