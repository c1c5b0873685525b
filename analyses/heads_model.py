"""What the heads and MLPs of a model compute on functions of a Gaussian process, with controls."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.subject import Subject, open_subject
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp.covariance import Covariance
from interp.heads import HeadsReport, read_heads
from models.prompts import GaussianProcess


@dataclass(frozen=True)
class Config:
    """Which model, and on how many prompts of its own family; a quarter of them is held out."""

    model: str
    prompts: int = 384
    clustered: float | None = None
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class HeadsFound:
    """The answer for one model."""

    subject: Subject
    family: GaussianProcess
    report: HeadsReport

    def __str__(self) -> str:
        return f"{self.subject.name}: what its heads and MLPs compute\nprompts: {self.family}\n{self.report}"

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.subject.name, "prompts_of": self.family.to_dict(), **self.report.to_dict()}


def run(config: Config) -> HeadsFound:
    """Load, draw prompts, regress.

    Raises:
        ValueError: the model's task is not a Gaussian process.
    """
    subject = open_subject(config.model, config.device)
    family = process_of(subject)
    if config.clustered is not None:
        family = GaussianProcess(**{**_settings(family), "clustered": config.clustered})
    prompts = subject.prompts(config.prompts, config.seed, family)
    covariance: Covariance = family.kernel
    return HeadsFound(subject, family, read_heads(subject.model, prompts, covariance, family.lam, seed=config.seed))


def process_of(subject: Subject) -> GaussianProcess:
    """The model's family, if it is a Gaussian process.

    Raises:
        ValueError: it is another.
    """
    if not isinstance(subject.family, GaussianProcess):
        raise ValueError(
            f"interp heads compares heads with the kernel of a Gaussian process, and the task of {subject.name} is "
            f"{type(subject.family).__name__}; take a model trained on GaussianProcess prompts, or interp unroll"
        )
    return subject.family


def _settings(family: GaussianProcess) -> dict[str, Any]:
    return {name: value for name, value in family.to_dict().items() if name != "family"}


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    prompts: Annotated[int, typer.Option(help="Prompts, a quarter of them held out.")] = Config.prompts,
    clustered: Annotated[
        float | None, typer.Option(help="Share of inputs that cluster; default: as in the model's own prompts.")
    ] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw scores, operators, probes and MLPs to this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of prompts and controls.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Regress attention scores, tokens and MLP outputs on the parts of a kernel solver, with controls."""
    result = run(Config(model, prompts, clustered, seed, device))
    if figure is not None:
        from analyses.heads_figure import draw_heads

        draw_heads(result.report, result.subject.name, figure)
        note(f"figure: {figure}")
    write_or_print(to_json(result.to_dict()) if format == "json" else str(result), out)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.heads_model MODEL`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
