"""Measure the claims of the literature and judge them by criteria fixed beforehand."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses import claims
from analyses.claims.claim import Settings
from analyses.claims.scorecard import Row, Scored, score, table
from analyses.terminal import BAD_INPUT, MAX_SEED, note, run_command, to_json, write_or_print
from models.training import pick_device


@dataclass(frozen=True)
class Config:
    """Which claims (none for all), at which sizes, and where figures and numbers go."""

    names: tuple[str, ...] = ()
    full: bool = False
    seed: int = 0
    device: str = "cpu"
    out: Path | None = None


@dataclass(frozen=True)
class Reproduction:
    """The scorecard of a run: the claims that were measured, and for those that could not be the reason."""

    config: Config
    scored: tuple[Scored, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for entry in self.scored for row in entry.rows]

    @property
    def holds(self) -> bool:
        """Is no claim "not reproduced"."""
        return all(row.verdict != "not reproduced" for row in self.rows)

    def __str__(self) -> str:
        detailed = [str(entry) for entry in self.scored] if self.config.names else []
        failed = [f"{name} could not be measured: {reason}" for name, reason in self.failed.items()]
        return "\n\n".join([*detailed, *([table(self.rows)] if self.rows else []), *failed])

    def to_list(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Rows, the numbers behind them, settings and versions."""
        settings = {**asdict(self.config), "names": list(self.config.names), "out": str(self.config.out)}
        versions = {name: version(name) for name in ("torch", "numpy", "scikit-learn", "transformer-lens")}
        return {
            "rows": self.to_list(),
            "details": {entry.claim.name: dict(entry.findings.details) for entry in self.scored},
            "tables": {entry.claim.name: entry.findings.table for entry in self.scored},
            "failed": dict(self.failed),
            "settings": settings,
            "versions": {"python": platform.python_version(), **versions},
        }


def run(config: Config) -> Reproduction:
    """Measure the claims asked for, one after the other; what is measured is stored before the next begins.

    A claim that raises does not stop the others: its reason is kept.
    """
    chosen = [claims.load(name) for name in dict.fromkeys(config.names or claims.names())]
    settings = Settings(config.full, config.seed, str(pick_device(config.device)))
    result = Reproduction(config)
    for number, claim in enumerate(chosen, start=1):
        note(f"{number}/{len(chosen)} {claim.name}")
        try:
            result = replace(result, scored=(*result.scored, score(claim, settings, config.out)))
        except (ValueError, RuntimeError, ArithmeticError) as error:
            result = replace(result, failed={**result.failed, claim.name: " ".join(str(error).split())})
        if config.out is not None:
            write_or_print(to_json(result.to_dict()), config.out / "scorecard.json")
    return result


def open_directory(path: Path) -> None:
    """Make the directory for figures and numbers, before anything is measured."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {path} cannot be a directory for figures and numbers: {error.strerror}") from error


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all of them if none is given.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The published sizes, which take long.")] = False,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="A directory for figures and scorecard.json.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of everything drawn.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Measure claims of the literature. Exit code 1 if one is not reproduced, 2 if one could not be measured."""
    if out is not None:
        open_directory(out)
    result = run(Config(tuple(names or ()), full, seed, device, out))
    typer.echo(to_json(result.to_list()) if format == "json" else str(result))
    for name, reason in result.failed.items():
        note(f"error: {name} could not be measured: {reason}")
    if result.failed:
        raise typer.Exit(BAD_INPUT)
    if not result.holds:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.reproduce [NAME …]`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
