"""Unroll a model: its update rule, the certificate on fresh prompts, and how far from its training the rule holds."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses.subject import Subject, open_subject
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
from interp import certify, unroll
from interp.unrolling import Certificate, UpdateRule
from interp.unrolling.rule import Level

Format = Literal["text", "latex", "json", "python"]
EXACT_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Config:
    """What to unroll and on which prompts.

    Args:
        model: a zoo name or the path of a checkpoint.
        fitting: prompts on which words are dropped and coefficients refitted.
        prompts: fresh prompts of the certificate; a quarter of them for each edge of the training distribution.
        device: where model and prompts live.
        core_error: error that the core must reach.
        words_error: largest rms error (central 99 %) of all words at which the certificate still says yes.
    """

    model: str
    seed: int = 0
    device: str = "cpu"
    fitting: int = 512
    prompts: int = 1024
    core_error: float = 2e-3
    words_error: float = 1e-2

    def __post_init__(self) -> None:
        for name in ("fitting", "prompts"):
            if getattr(self, name) < 4:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 4")
        for name in ("core_error", "words_error"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")


@dataclass(frozen=True)
class Unrolled:
    """The answer: rule, certificate on the training distribution, certificates at its edges, and what fails."""

    subject: Subject
    rule: UpdateRule
    certificate: Certificate
    edges: Mapping[str, Certificate]
    failures: tuple[str, ...]

    @property
    def certified(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        assumed = "" if self.subject.stated else " (assumed: the checkpoint states no task)"
        parts = [
            f"{self.subject.name}\n{self.rule}",
            f"prompts: {self.subject.family}{assumed}\n{self.certificate}",
            _edge_table(self),
            "verdict: " + ("certified" if self.certified else "NOT certified: " + "; ".join(self.failures)),
        ]
        return "\n\n".join(parts)

    def to_dict(self, exact: bool = False) -> dict[str, Any]:
        return {
            "model": self.subject.name,
            "prompts": {**self.subject.family.to_dict(), "stated_by_checkpoint": self.subject.stated},
            **self.rule.to_dict(exact),
            "certificate": self.certificate.to_dict(),
            "edges": {label: certificate.to_dict() for label, certificate in self.edges.items()},
            "certified": self.certified,
            "failures": list(self.failures),
        }


def run(config: Config) -> Unrolled:
    """Load, unroll, certify."""
    subject = open_subject(config.model, config.device)
    seed = 3 * config.seed
    rule = unroll(subject.model, prompts=subject.prompts(config.fitting, seed), core_error=config.core_error)
    certificate = certify(rule, subject.model, subject.prompts(config.prompts, seed + 1))
    edges = {
        label: certify(rule, subject.model, subject.prompts(max(4, config.prompts // 4), seed + 2, family))
        for label, family in subject.family.edges().items()
    }
    return Unrolled(subject, rule, certificate, edges, _failures(certificate, config))


def _failures(certificate: Certificate, config: Config) -> tuple[str, ...]:
    """Which levels the certificate does not grant; the exact one by its worst prompt, the others by their rms."""
    exact = certificate.levels["exact"].output.max_relative_error
    limits = {
        f"exact differs by {exact:.3g}, more than {EXACT_TOLERANCE:g}": exact > EXACT_TOLERANCE,
    }
    levels: dict[Level, float] = {"words": config.words_error, "core": config.core_error}
    for level, limit in levels.items():
        error = certificate.levels[level].output.central_rms_relative_error
        limits[f"{level} differ by {error:.3g}, more than {limit:g}"] = not error <= limit
    return tuple(reason for reason, fails in limits.items() if fails)


def _edge_table(result: Unrolled) -> str:
    """The rule's domain: errors of each level at the edges of the training distribution."""
    lines = [f"  {'':<28}{'exact, max':>14}{'words, rms':>14}{'core, rms':>14}{'model, rms':>14}"]
    for label, certificate in {"as trained": result.certificate, **result.edges}.items():
        levels = certificate.levels
        cells = [
            levels["exact"].output.max_relative_error,
            levels["words"].output.central_rms_relative_error,
            levels["core"].output.central_rms_relative_error,
            certificate.task.rms_relative_error if certificate.task else float("nan"),
        ]
        lines.append(f"  {label:<28}" + "".join(f"{cell:>14.3g}" for cell in cells))
    return "\n".join(["domain: relative error of rule against model, and of model against target", *lines])


def render(result: Unrolled, form: Format, exact: bool) -> str:
    """The answer in one of the formats; `exact` gives the matrices."""
    if form == "json":
        return to_json(result.to_dict(exact))
    if form == "python":
        return result.rule.python("exact" if exact else None)
    if form == "latex":
        if exact:
            raise ValueError("--exact has no LaTeX form, since the matrices are too wide; take json or python")
        return result.rule.latex()
    return f"{result}\n\n{_matrices(result.rule)}" if exact else str(result)


def _matrices(rule: UpdateRule) -> str:
    parts = ["matrices of the exact level, in block coordinates"]
    for index, layer in enumerate(rule.layers):
        for item in layer.groups:
            for head in range(len(item.group.Q)):
                for name, matrix in (("Q", item.group.Q[head]), ("V", item.group.V[head])):
                    rows = "\n".join(" ".join(f"{value: .5g}" for value in row) for row in matrix.tolist())
                    parts.append(f"layer {index}, head {head}, {name}\n{rows}")
    return "\n".join(parts)


def command(
    model: Annotated[str, typer.Argument(help="A model that ships, or the path of a checkpoint.")],
    format: Annotated[Format, typer.Option(help="What to print.")] = "text",
    exact: Annotated[bool, typer.Option("--exact", help="Give the matrices of the exact level.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the error by depth to this file.")] = None,
    prompts: Annotated[int, typer.Option(help="Fresh prompts of the certificate.")] = Config.prompts,
    core_error: Annotated[float, typer.Option(help="Error that the core must reach.")] = Config.core_error,
    words_error: Annotated[
        float, typer.Option(help="Error of all words that is still certified.")
    ] = Config.words_error,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the prompts.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Print the update rule that a model runs, and its certificate. Exit code 1 if the certificate is not granted."""
    config = Config(model, seed, device, prompts=prompts, core_error=core_error, words_error=words_error)
    result = run(config)
    text = render(result, format, exact)
    if figure is not None:
        _draw(result, figure, seed)
    write_or_print(text, out)
    if not result.certified:
        note("not certified: " + "; ".join(result.failures))
        raise typer.Exit(1)


def _draw(result: Unrolled, path: Path, seed: int) -> None:
    from analyses.figures import draw_error_by_depth, error_by_depth

    subject = result.subject
    prompts = subject.prompts(512, 3 * seed + 1)
    draw_error_by_depth(error_by_depth(subject.model, result.rule, prompts), subject.name, path)
    note(f"figure: {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.unroll_model MODEL …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
