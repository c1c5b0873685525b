"""Probe a model: what its activations say about a quantity, layer by layer, with the controls beside it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.subject import Subject, check_pairs, open_subject, token_form
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp.probes import PENALTIES, MLPProbe, ProbeReport, probe

Target = Literal["w", "xty", "hessian", "prediction", "dual"]
ReadingName = Literal["auto", "token", "pooled", "weighted", "rows", "queries", "second-moment"]


@dataclass(frozen=True)
class Config:
    """What to probe, for what, from which features, on how many prompts.

    Args:
        model: a zoo name or the path of a checkpoint.
        target, reading, estimator, hooks: as in `interp.probe`; no hooks are the residual stream at every depth.
        ridge: λ of the targets w, prediction and dual.
        alphas: penalties in units of the mean eigenvalue of the Gram matrix.
        prompts: training and held-out ones together; a quarter is held out.
    """

    model: str
    target: Target = "w"
    reading: ReadingName = "auto"
    estimator: Literal["ridge", "mlp"] = "ridge"
    hooks: tuple[str, ...] = ()
    ridge: float = 0.0
    alphas: tuple[float, ...] = PENALTIES
    prompts: int = 4096
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Probed:
    """The answer for one model."""

    subject: Subject
    report: ProbeReport

    def __str__(self) -> str:
        assumed = "" if self.subject.stated else " (assumed: the checkpoint states no task)"
        best = self.report.best
        verdict = "above its controls" if best.above_controls else "not above its controls"
        return (
            f"{self.subject.name}: {self.report}\nprompts: {self.subject.family}{assumed}\n"
            f"best: {best.hook}, R² {best.score}, {verdict} (reading a quantity does not show "
            "that the model uses it)"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "prompts": {**self.subject.family.to_dict(), "stated_by_checkpoint": self.subject.stated},
            **self.report.to_dict(),
            "best": self.report.best.hook,
        }


def run(config: Config) -> Probed:
    """Load, draw prompts, probe."""
    subject = open_subject(config.model, config.device)
    check_pairs(subject.model, token_form(subject.metadata))
    report = probe(
        subject.model,
        subject.prompts(config.prompts, 3 * config.seed),
        config.target,
        config.hooks or None,
        reading=config.reading,
        estimator="ridge" if config.estimator == "ridge" else MLPProbe(random_state=config.seed),
        alphas=config.alphas,
        ridge=config.ridge,
        seed=config.seed,
    )
    return Probed(subject, report)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    target: Annotated[Target, typer.Option(help="What to look for.")] = "w",
    reading: Annotated[ReadingName, typer.Option(help="How activations become features.")] = "auto",
    estimator: Annotated[
        Literal["ridge", "mlp"], typer.Option("--probe", help="A ridge probe or a small multilayer perceptron.")
    ] = "ridge",
    hook: Annotated[list[str] | None, typer.Option(help="A hook point to read; may be repeated.")] = None,
    ridge: Annotated[float, typer.Option(help="λ of the targets w, prediction and dual.")] = 0.0,
    alpha: Annotated[list[float] | None, typer.Option(help="A penalty to choose from; may be repeated.")] = None,
    prompts: Annotated[int, typer.Option(help="Prompts, a quarter of them held out.")] = Config.prompts,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the scores by layer to this file.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of prompts and controls.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Read a quantity from a model's activations, layer by layer, with shuffled, untrained and prompt-only controls."""
    alphas = tuple(alpha) if alpha else PENALTIES
    config = Config(model, target, reading, estimator, tuple(hook or ()), ridge, alphas, prompts, seed, device)
    result = run(config)
    if figure is not None:
        from analyses.probe_figure import draw_probe

        draw_probe(result.report, result.subject.name, figure)
        note(f"figure: {figure}")
    write_or_print(to_json(result.to_dict()) if format == "json" else str(result), out)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.probe_model MODEL --target …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
