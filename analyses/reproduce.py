"""Measure the claims of the literature and judge them by criteria fixed beforehand."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from analyses import claims
from analyses.claims.claim import Settings
from analyses.claims.scorecard import Row, Scored, score_all, table
from analyses.terminal import MAX_SEED, note, run_command, to_json, write_or_print
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
    """The scorecard of a run."""

    config: Config
    scored: tuple[Scored, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for entry in self.scored for row in entry.rows]

    @property
    def holds(self) -> bool:
        """Is no claim "not reproduced"."""
        return all(row.verdict != "not reproduced" for row in self.rows)

    def __str__(self) -> str:
        detailed = [str(entry) for entry in self.scored] if self.config.names else []
        return "\n\n".join([*detailed, table(self.rows)])

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
            "settings": settings,
            "versions": {"python": platform.python_version(), **versions},
        }


def run(config: Config) -> Reproduction:
    """Measure the claims asked for."""
    chosen = [claims.load(name) for name in config.names or claims.names()]
    settings = Settings(config.full, config.seed, str(pick_device(config.device)))
    return Reproduction(config, tuple(score_all(chosen, settings, config.out, note)))


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all of them if none is given.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The published sizes, which take long.")] = False,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
    out: Annotated[Path | None, typer.Option(help="A directory for figures and scorecard.json.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of everything drawn.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
) -> None:
    """Measure claims of the literature. Exit code 1 if one is not reproduced."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; give a directory for figures and numbers")
    result = run(Config(tuple(names or ()), full, seed, device, out))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_or_print(to_json(result.to_dict()), out / "scorecard.json")
    typer.echo(to_json(result.to_list()) if format == "json" else str(result))
    if not result.holds:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.reproduce [NAME …]`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
