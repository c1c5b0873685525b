"""A layout from the short text that a command line takes: "x=10,y=1,position=6,readout=y,sign=-1"."""

from typing import Any

from interp.layout import BlockLayout, Visibility

OPTIONS = {"n_query": int, "sign": float, "readout": str, "machines": int, "visibility": str}


def to_layout(given: str | BlockLayout, **defaults: Any) -> BlockLayout:
    """The layout itself, or the one that a text describes; `defaults` hold where the text is silent.

    Raises:
        ValueError: an entry is not name=number, or the blocks do not fit together.
    """
    if isinstance(given, BlockLayout):
        return given
    values: dict[str, Any] = dict(defaults)
    seen: set[str] = set()
    for entry in filter(None, (part.strip() for part in given.split(","))):
        name, equals, value = (part.strip() for part in entry.partition("="))
        kind = OPTIONS.get(name, int)
        if name in seen:
            raise ValueError(f"the layout {given!r} states {name!r} twice")
        seen.add(name)
        try:
            values[name] = kind(value)
        except ValueError:
            equals = ""
        if name not in OPTIONS and equals and values[name] < 1:
            raise ValueError(f"the layout {given!r} has the entry {entry!r}; a block has at least 1 column")
        if not equals or not value:
            raise ValueError(
                f"the layout {given!r} has the entry {entry!r}, which is not NAME={kind.__name__}; write the column "
                f"blocks in order, as in x=10,y=1,position=6, and any of {', '.join(OPTIONS)}"
            )
    rule = values.get("visibility")
    if isinstance(rule, str):
        values["visibility"] = Visibility(rule, rule)
    return BlockLayout.standard(**values)


def pairs_layout(d_model: int, **options: Any) -> BlockLayout:
    """All columns but the last are x, the last is y."""
    if d_model < 2:
        raise ValueError(f"tokens of {d_model} columns do not hold an input and a label; give the layout")
    return BlockLayout.standard(x=d_model - 1, y=1, **options)


def inputs_and_labels(layout: BlockLayout) -> bool:
    """Are the columns exactly the blocks x and y, side by side, so that prompts are tokens."""
    return list(layout.widths) == ["x", "y"]
