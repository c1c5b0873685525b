"""From a file to a model: the table of loaders, and the one that takes a file."""

from pathlib import Path
from typing import Any

from models.foreign import gpt2_icl, haiku, lsa_layernorm, matrices, merged
from models.foreign.arrays import listed
from models.foreign.contents import Contents, read_contents
from models.foreign.value import Foreign, ForeignError

# a loader is a module with NAME, OPTIONS, takes(contents) -> bool and load(contents, **options) -> Foreign
FORMATS: dict[str, Any] = {loader.NAME: loader for loader in (gpt2_icl, haiku, lsa_layernorm, matrices, merged)}
OPTIONS = tuple(sorted({option for loader in FORMATS.values() for option in loader.OPTIONS}))


def find_format(contents: Contents) -> str:
    """The name of the loader that takes a file.

    Raises:
        ForeignError: none does.
    """
    for name, loader in FORMATS.items():
        if loader.takes(contents):
            return name
    if gpt2_icl.is_vocabulary_model(contents):
        raise ForeignError(
            f"{contents.name} is a model of a vocabulary, which reads words; the analyses here are of regression and "
            "need a model that reads numbers, such as a GPT-2 with read_in and read_out"
        )
    raise ForeignError(
        f"no loader takes {contents.name}, a {contents.kind} file of {listed(contents.arrays)}; "
        f"the formats read are {', '.join(FORMATS)}"
    )


def load(path: str | Path, format: str | None = None, **options: Any) -> Foreign:
    """The model of a foreign file, by the loader that takes it or by `format`; options that are None are not given.

    Raises:
        ForeignError: the file or an option is refused, in a sentence.
        ValueError: an option has a wrong value.
    """
    _check_format(format)
    return load_contents(read_contents(path), format, **options)


def load_contents(contents: Contents, format: str | None = None, **options: Any) -> Foreign:
    """As `load`, for a file that was read."""
    _check_format(format)
    name = format or find_format(contents)
    given = {key: value for key, value in options.items() if value is not None}
    if extra := sorted(set(given) - set(FORMATS[name].OPTIONS)):
        raise ForeignError(f"the format {name} has no option {extra[0]}; it has {', '.join(FORMATS[name].OPTIONS)}")
    return FORMATS[name].load(contents, **given)


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        raise ForeignError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
