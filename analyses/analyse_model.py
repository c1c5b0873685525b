"""Everything about one model on a stated task: read-out, rule, certificate, error, gradient step, terms, verdict.

For models of other people above all: a foreign file (see `models.foreign`), or a checkpoint of ours.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.foreign_subject import Prompted, Taken, take, with_readout
from analyses.frozen_study import FrozenStudy, study
from analyses.model_against_descent import Standing, stand
from analyses.subject import FRESH
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp import certify, unroll
from interp.readout import Readout
from interp.terms import Terms, terms_of
from interp.unrolling import Certificate, UpdateRule
from interp.unrolling.spectral import input_block
from models.transformer import HookedTransformer

EXACT_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Config:
    """What to analyse, on which task, on how many prompts.

    Args:
        layout: column blocks of the tokens, as in "x=10,y=1,position=6"; None for what the loader says.
        task: a prompt family by name, of `rows` context rows; None for the one that the checkpoint states.
        prompts: of error, gradient step and verdict. `searched`: of the read-out and the terms. `certified`: of the
            certificate. `linearised`: at which norms and MLPs are frozen.
        batch, recorded, half: a loss that others report for one batch, and whether it is half the mean squared error.
    """

    model: str
    layout: str | None = None
    task: str | None = None
    rows: int | None = None
    format: str | None = None
    prompts: int = 20_000
    searched: int = 8192
    certified: int = 512
    linearised: int = 64
    batch: int = 2048
    recorded: float | None = None
    half: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {"prompts": 16, "searched": 64, "certified": 4, "linearised": 2, "batch": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")


@dataclass(frozen=True)
class Analysis:
    """The answer, part by part; a part that does not apply to the model is None, and `notes` say why."""

    taken: Taken
    readout: Readout | None
    rule: UpdateRule | None
    certificate: Certificate | None
    terms: Terms | None
    frozen: FrozenStudy | None
    standing: Standing
    notes: tuple[str, ...]

    @property
    def exact_error(self) -> float | None:
        """The worst relative error of the exact rule, of all parts; of a frozen one with the prompts' own scales."""
        if self.certificate is not None:
            return self.certificate.levels["exact"].output.max_relative_error
        return None if self.frozen is None or self.frozen.freezing is None else self.frozen.freezing.own

    @property
    def certified(self) -> bool:
        """Does every rule that is given equal the model to 1e-10."""
        return self.exact_error is None or self.exact_error <= EXACT_TOLERANCE

    def __str__(self) -> str:
        parts = [_heading(self.taken), str(self.readout) if self.readout else "", *self.notes]
        if self.rule is not None and self.certificate is not None:
            parts += [str(self.rule), self.certificate.summary()]
        if self.terms is not None:
            parts.append(_terms_text(self.terms, self.taken.model))
        parts += [str(self.frozen) if self.frozen else "", str(self.standing), _exact_line(self)]
        return "\n\n".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        own = self.terms and shares(self.terms, self.taken.model)
        return {
            "model": self.taken.name,
            "source": self.taken.source.metadata(),
            "prompts": self.taken.family.to_dict(),
            "layout": self.taken.model.layout.to_dict(),
            "readout": self.readout and self.readout.to_dict(),
            "rule": self.rule and self.rule.to_dict(),
            "certificate": self.certificate and self.certificate.to_dict(),
            "terms": self.terms and {**self.terms.to_dict(), **(own or {})},
            "linearisation": self.frozen and self.frozen.to_dict(),
            **self.standing.to_dict(),
            "notes": list(self.notes),
            "certified": self.certified,
        }


def run(config: Config) -> Analysis:
    """Open, find the read-out, measure the error, unroll or linearise."""
    taken = take(config.model, config.layout, config.task, config.rows, config.format)
    readout, taken, notes = with_readout(taken, config.searched, config.seed)
    steps = taken.model.cfg.n_layers
    standing = stand(
        taken.answer,
        taken.family,
        config.prompts,
        steps,
        FRESH + config.seed,
        config.batch,
        config.recorded,
        config.half,
    )
    if taken.model.cfg.is_linear_attention:
        tokens, prompts = taken.tokens(config.certified, config.seed + 2)
        rule = unroll(taken.model)
        certificate = certify(rule, taken.model, Prompted(tokens, prompts.target))
        terms = terms_of(rule, taken.tokens(config.searched, config.seed + 3)[0])
        return Analysis(taken, readout, rule, certificate, terms, None, standing, notes)
    frozen = study(taken.model, taken.tokens(config.linearised, config.seed + 2)[0], config.seed)
    return Analysis(taken, readout, None, None, None, frozen, standing, notes)


def shares(terms: Terms, model: HookedTransformer) -> dict[str, float]:
    """The shares of the gradient step (of several layers: each on its own input), of other blocks, and of the rest."""
    step, extra = _gradient_term(model)
    gradient, crossed = terms.share(row=step[0], moment=step), terms.reading(extra)
    return {"gradient_step": gradient, "other_blocks": crossed, "rest": 1 - gradient - crossed}


def _gradient_term(model: HookedTransformer) -> tuple[tuple[str, str], set[str]]:
    """The blocks x, y of the gradient step, and the blocks beside them."""
    layout = model.layout
    x, y = input_block(layout), layout.rotates_with(layout.readout)
    return (x, y), set(layout.columns) - {x, y}


def _terms_text(terms: Terms, model: HookedTransformer) -> str:
    (x, y), extra = _gradient_term(model)
    own = shares(terms, model)
    step = f"gradient step z_{x} S_{x}{y}"
    if model.cfg.n_layers > 1:
        step = f"z_{x} S_{x}{y} of all layers, each a gradient step on what that layer finds in {x} and {y}"
    lines = [
        f"terms of the prediction on {terms.prompts} prompts: share of its variance, and what their words say of it",
        terms.table(),
        f"  {step}: {own['gradient_step']:.3f} of the function",
    ]
    if extra:
        lines.append(
            f"  cross-terms with {', '.join(sorted(extra))}: {own['other_blocks']:.3f}; the rest {own['rest']:.3f}"
        )
    return "\n".join(lines)


def _heading(taken: Taken) -> str:
    source = taken.source
    parity = "" if source.parity is None else f"\n  {source.parity}"
    loader = source.provenance.get("loader")
    notes = "".join(f"\n  {text}" for text in source.notes)
    return f"{taken.name}{f', by the loader {loader}' if loader else ''}\nprompts: {taken.family}{parity}{notes}"


def _exact_line(analysis: Analysis) -> str:
    error = analysis.exact_error
    if error is None:
        return "no exact rule: the model is linearised at prompts only"
    verdict = "" if analysis.certified else f", NOT certified, since more than {EXACT_TOLERANCE:g}"
    if analysis.rule is not None:
        return f"exact rule against the model: {error:.2g}{verdict or ', certified'}"
    return (
        f"no exact rule: with a prompt's own scales the frozen one differs by {error:.2g}{verdict}, elsewhere as above"
    )


def command(
    model: Annotated[str, typer.Argument(help="A foreign file, a checkpoint, or a model that ships.")],
    layout: Annotated[str | None, typer.Option(help="Column blocks of the tokens: x=10,y=1,position=6.")] = None,
    task: Annotated[str | None, typer.Option(help="Prompt family, such as UniformRegression.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Context rows of a prompt; 2 d if not given.")] = None,
    loader: Annotated[str | None, typer.Option(help="The loader of a foreign file; found if not given.")] = None,
    prompts: Annotated[int, typer.Option(help="Prompts of error, gradient step and verdict.")] = Config.prompts,
    linearised: Annotated[int, typer.Option(help="Prompts at which norms and MLPs are frozen.")] = Config.linearised,
    batch: Annotated[int, typer.Option(help="Batch size whose scatter is shown.")] = Config.batch,
    recorded: Annotated[float | None, typer.Option(help="A loss that others report for one batch.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Losses as half the mean squared error.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the prompts.")] = 0,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Everything about one model on a stated task. Exit code 1 if a rule that is given is not certified."""
    config = Config(
        model,
        layout,
        task,
        rows,
        loader,
        prompts,
        linearised=linearised,
        batch=batch,
        recorded=recorded,
        half=half,
        seed=seed,
    )
    result = run(config)
    write_or_print(to_json(result.to_dict()) if format == "json" else str(result), out)
    if not result.certified:
        note(f"not certified: the exact rule differs by {result.exact_error:.3g}")
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.analyse_model MODEL …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
