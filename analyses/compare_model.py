"""Compare a model, layer by layer, with solvers of the kernel system behind its prompts, with controls."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.subject import FRESH, Subject, open_subject
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp.comparison import (
    CANDIDATES,
    PRECONDITIONED_RICHARDSON,
    RICHARDSON,
    TO_KRR,
    Comparison,
    Control,
    Draws,
    Fan,
    Problems,
    choose,
    compare,
    fan,
)
from models.constructions.construction import Construction, PromptShape
from models.constructions.richardson import richardson
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

QUERIES = 16  # of a prompt, where its format lets queries stand side by side without seeing each other
SEEDS_APART = 1_000_000
ReadoutName = Literal["own read-out", "probe to target", "probe to KRR"]


@dataclass(frozen=True)
class Config:
    """What to compare with what.

    Args:
        model: a zoo name or the path of a checkpoint whose task is a GaussianProcess.
        solvers: names among `CANDIDATES`; none are all.
        prompts: to compare on, for each of `seeds`; the probes are fitted on as many again, or twice as many if each
            has one query only.
        clustered: the share of inputs in a cluster; None for that of the model's task.
        control, control_prompts, control_steps, control_m: run the built network; on how many prompts a seed (n = 16,
            λ = 1.6, ℓ = 0.3), how many steps and segments a square.
        lengths: context lengths of the fan figure.
    """

    model: str
    solvers: tuple[str, ...] = ()
    readout: ReadoutName = TO_KRR
    prompts: int = 128
    seeds: int = 10
    steps: int = 128
    clustered: float | None = None
    control: bool = True
    control_prompts: int = 64
    control_steps: int = 6
    control_m: int = 400
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    figures: bool = False
    seed: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Compared:
    """The answer for one model."""

    subject: Subject
    family: GaussianProcess
    comparison: Comparison
    fan: Fan | None

    def __str__(self) -> str:
        return (
            f"{self.subject.name} on {self.family.kernel}, {describe(self.family)}\n{self.comparison}{self._contrast()}"
        )

    def _contrast(self) -> str:
        """Preconditioned minus plain Richardson on C, which clustered inputs should pull apart (MATH §7)."""
        if not {PRECONDITIONED_RICHARDSON, RICHARDSON} <= set(self.comparison.measured[TO_KRR].solvers):
            return ""
        by = self.comparison.contrast("C", PRECONDITIONED_RICHARDSON, RICHARDSON)
        return (
            f"\nC of preconditioned minus plain Richardson: {by.mean:+.3f} [{by.interval[0]:+.3f}, "
            f"{by.interval[1]:+.3f}], ± {by.deviation:.3f} between groups"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "prompts": self.family.to_dict(),
            **self.comparison.to_dict(),
            "fan": None if self.fan is None else self.fan.to_dict(),
        }


def describe(family: GaussianProcess) -> str:
    """The prompts in words."""
    clustered = f", {family.clustered:.0%} of inputs clustered" if family.clustered else ""
    return f"n = {family.n}, d = {family.d}, {family.token_format} format{clustered}"


def run(config: Config) -> Compared:
    """Load, compare with the controls, and measure the fan if figures are asked for."""
    subject = open_subject(config.model, config.device)
    family = process_of(subject)
    if config.clustered is not None:
        family = replace(family, clustered=config.clustered)
    solvers = choose(config.solvers) if config.solvers else CANDIDATES
    model, family = widened(subject.model, family)
    train = config.prompts * (1 if family.n_query > 1 else 2)
    found = compare(
        model,
        sampler(subject, family, config.seed),
        family.kernel,
        family.lam,
        solvers=solvers,
        steps=config.steps,
        seeds=config.seeds,
        train=train,
        test=config.prompts,
        readout=config.readout,
        control=built_control(config) if config.control else None,
    )
    return Compared(subject, family, found, _fan(config, subject, model, family, train) if config.figures else None)


def _fan(config: Config, subject: Subject, model: Any, family: GaussianProcess, train: int) -> Fan:
    return fan(
        model,
        lambda n: sampler(subject, replace(family, n=n), config.seed),
        tuple(n for n in config.lengths if n <= family.n) or (family.n,),
        family.kernel,
        family.lam,
        solvers=choose(config.solvers) if config.solvers else CANDIDATES,
        readout=config.readout,
        train=2 * train,
        test=2 * config.prompts,
    )


def process_of(subject: Subject) -> GaussianProcess:
    """The model's family, which has to be a Gaussian process with noise."""
    if not isinstance(subject.family, GaussianProcess):
        raise ValueError(
            f"{subject.name} was trained on {type(subject.family).__name__} prompts, behind which there is no kernel "
            "system; compare takes models of a GaussianProcess task"
        )
    return subject.family


def widened(model: HookedTransformer, family: GaussianProcess) -> tuple[HookedTransformer, GaussianProcess]:
    """The same weights and prompts with `QUERIES` queries, each of which sees the context and itself."""
    if family.token_format != "pair" or model.cfg.positional_embedding_type is not None:
        return model, family
    layout = replace(model.layout, n_query=QUERIES)
    return HookedTransformer.from_weights(model.cfg, layout, model.state_dict()), replace(family, n_query=QUERIES)


def sampler(subject: Subject, family: GaussianProcess, seed: int) -> Callable[[int, int], Problems]:
    """Fresh problems by count and seed, on the model's device."""

    def draw(count: int, index: int) -> Problems:
        drawn = family.sample(count, seed=FRESH + SEEDS_APART * seed + index, device=subject.device)
        return Problems.of(drawn)

    return draw


def built_control(config: Config) -> Control:
    """The tracked Richardson network on prompts of its own: it is sized for them."""
    family = GaussianProcess(n=16, lam=1.6, lengthscale=0.3)
    shape = PromptShape(d=1, n=16, n_query=1)
    built = richardson(
        shape, family.lam, family.lengthscale, config.control_steps, config.control_m, y_max=10.0, tracked=True
    )
    return control_of(built, family, config)


def control_of(built: Construction, family: GaussianProcess, config: Config) -> Control:
    """A construction as a control."""

    def draw(count: int, index: int) -> Problems:
        drawn = family.sample(count, seed=FRESH + index)
        return Problems.of(drawn, built.tokens(drawn))

    draws = Draws(draw, 2 * config.control_prompts, config.control_prompts, config.seeds)
    return Control("built Richardson network", built.model, draws, family.kernel, family.lam)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    solver: Annotated[list[str] | None, typer.Option(help="A solver to compare with; may be repeated.")] = None,
    readout: Annotated[ReadoutName, typer.Option(help="What the verdict rests on.")] = TO_KRR,
    prompts: Annotated[int, typer.Option(help="Prompts a seed.")] = Config.prompts,
    seeds: Annotated[int, typer.Option(help="Groups of prompts, over which spreads are.")] = Config.seeds,
    steps: Annotated[int, typer.Option(help="Most steps of a solver.")] = Config.steps,
    clustered: Annotated[float | None, typer.Option(help="Share of inputs in a cluster.")] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the fan and the heat maps to files that start with this.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED // SEEDS_APART, help="Seed of the prompts.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Which solver of kernel ridge regression the layers follow, beside a built network and two random ones."""
    config = Config(
        model,
        tuple(solver or ()),
        readout,
        prompts,
        seeds,
        steps,
        clustered,
        figures=figure is not None,
        seed=seed,
        device=device,
    )
    result = run(config)
    if figure is not None:
        from analyses.comparison_figures import draw_comparison

        for path in draw_comparison(result.comparison, result.fan, result.subject.name, figure):
            note(f"figure: {path}")
    write_or_print(to_json(result.to_dict()) if format == "json" else str(result), out)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.compare_model MODEL`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
