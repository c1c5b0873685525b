"""Name the algorithm that a model runs, or say that it is unknown."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from analyses.subject import Subject, open_subject
from analyses.terminal import MAX_SEED, run_command, to_json
from interp import Identification, closed_form, identify, unroll
from models.transformer import HookedTransformer

T3 = 4 / 3  # |η|‖A‖² at which one layer maps singular values by −T₃/3
AT_T3 = 0.05


@dataclass(frozen=True)
class Config:
    """Which model, and on how many prompts families are compared."""

    model: str
    prompts: int = 256
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.prompts < 1:
            raise ValueError(f"prompts={self.prompts} must be at least 1")


@dataclass(frozen=True)
class Identified:
    """The answer for one model, with what its step sizes say beside the named points of EAGLE."""

    subject: Subject
    identification: Identification
    conditioning: tuple[float, ...]

    def __str__(self) -> str:
        text = f"{self.subject.name}: {self.identification}\n  prompts: {self.subject.family}"
        if self.conditioning:
            values = ", ".join(f"{value:.4g}" for value in self.conditioning)
            text += f"\n  |η_l|‖A_l‖² by layer, ‖A_l‖ the largest on the prompts: {values} (−T₃/3 is 4/3, theory 1/3)"
            text += f"\n  {self.basin}"
        return text

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "prompts": self.subject.family.to_dict(),
            **self.identification.to_dict(),
            "conditioning": list(self.conditioning),
            "basin": self.basin,
        }

    @property
    def basin(self) -> str | None:
        """Where the first layer sits: trainings end in several optima, which its conditioning tells apart."""
        if not self.conditioning:
            return None
        first = self.conditioning[0] / T3
        at = f"at −T₃/3 ({first - 1:+.1%})" if abs(first - 1) < AT_T3 else f"at {first:.3g} of −T₃/3, another basin"
        return f"the first layer's conditioning sits {at}"


def run(config: Config) -> Identified:
    """Load, unroll, compare with every family."""
    subject = open_subject(config.model, config.device)
    prompts = subject.prompts(config.prompts, 3 * config.seed)
    identification = identify(subject.model, prompts)
    return Identified(subject, identification, _conditioning(subject.model, prompts, identification))


def _conditioning(model: HookedTransformer, prompts: Any, found: Identification) -> tuple[float, ...]:
    """|η_l| in units of 1/‖A_l‖², for rules in which it is a number a layer."""
    if not any("EAGLE" in family or family == "GD++" for family in found.families):
        return ()
    rule = unroll(model, prompts=prompts)
    form = closed_form(rule)
    if form is None or rule.function is None:
        return ()
    pairs = zip(form.eta[:-1], rule.function.context_norm, strict=False)
    return tuple(-eta * largest**2 for eta, (_, largest) in pairs)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    prompts: Annotated[int, typer.Option(help="Prompts on which families are compared.")] = Config.prompts,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the prompts.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Name the algorithm that a model runs. Exit code 1 if it is unknown."""
    result = run(Config(model, prompts, seed, device))
    typer.echo(to_json(result.to_dict()) if format == "json" else str(result))
    if result.identification.verdict == "unknown":
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.identify_model MODEL …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
