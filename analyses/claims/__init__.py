"""The claims of the literature, one a file: `measure(settings)` returns what `criteria` asks for."""

from importlib import import_module

from analyses.claims.claim import Claim
from analyses.claims.criteria import CRITERIA

MODULES = {name: f"analyses.claims.{name.replace('-', '_')}" for name in CRITERIA}


def names() -> list[str]:
    """The claims, in the order of the scorecard."""
    return list(CRITERIA)


def load(name: str) -> Claim:
    """A claim by its name.

    Raises:
        ValueError: no claim has that name; the message lists those that exist.
    """
    if name not in CRITERIA:
        raise ValueError(f"unknown claim {name!r}; known: {', '.join(CRITERIA)}")
    module = import_module(MODULES[name])
    return Claim(name, " ".join((module.__doc__ or "").split()), CRITERIA[name], module.measure)
