"""Identify models that are nothing but matrices: every FILE.npz of a directory, with FILE.npy as its prompts."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from analyses.terminal import run_command, to_json
from interp import identify
from models.constructions import bare


def run(directory: Path) -> list[dict[str, Any]]:
    """The answer for each file, in the order of their names.

    Raises:
        ValueError: the directory holds no npz, or a file is not one of bare matrices.
    """
    files = sorted(directory.glob("*.npz"))
    if not files:
        raise ValueError(f"{directory} holds no npz files of bare matrices")
    answers = []
    for file in files:
        tokens = torch.from_numpy(np.load(file.with_suffix(".npy")))
        answers.append({"file": file.name, **identify(bare.load(file), tokens).to_dict()})
    return answers


def command(directory: Annotated[Path, typer.Argument(help="Where the npz and npy files are.")]) -> None:
    """Print the answers as JSON."""
    typer.echo(to_json(run(directory)))


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.identify_bare DIRECTORY`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
