"""Where trained models that other people published lie on this machine; they carry no licence and are not shipped."""

import os
from pathlib import Path

import pytest

FOLDER = Path(
    os.environ.get("ICL_PUBLISHED_CHECKPOINTS", Path(__file__).resolve().parents[4] / "shared" / "checkpoints")
)


def published(name: str) -> Path:
    """The path of a published checkpoint; skips where the folder is absent."""
    if not (FOLDER / name).is_file():
        pytest.skip(f"the published checkpoint {name} is not here; ICL_PUBLISHED_CHECKPOINTS names its folder")
    return FOLDER / name
