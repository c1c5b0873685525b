"""What produced a file: library versions and the git revision of this source tree."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("icl-interp", "torch", "transformer-lens", "safetensors", "numpy")
_ROOT = Path(__file__).resolve().parents[1]


def library_versions() -> dict[str, str | None]:
    """Versions of Python and of the libraries that make a model's numbers; None for one that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def git_revision(root: Path = _ROOT) -> str | None:
    """The commit of the source tree, with "-dirty" if it has changes; None where there is no git or no repository."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
