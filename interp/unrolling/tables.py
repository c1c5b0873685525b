"""Aligned tables of at most 100 columns: labels down, layers across, some layers at a time."""

from collections.abc import Callable, Mapping, Sequence

WIDTH = 100
PER_TABLE = 5  # layers side by side
LABEL = 28
CELL = 14
ABSENT = "·"


def coefficient_table(layers: Sequence[Mapping[str, float]], digits: int) -> list[str]:
    """Words down, layers across; what a layer does not have is a dot."""
    lines, labels = [], list(dict.fromkeys(label for words in layers for label in words))
    for start in range(0, len(layers), PER_TABLE):
        part = layers[start : start + PER_TABLE]
        lines.append(line("word", [f"layer {start + i}" for i in range(len(part))]))
        for label in labels:
            values = [words.get(label) for words in part]
            lines.append(line(label, [ABSENT if value is None else f"{value:.{digits}g}" for value in values]))
    return lines


def by_layer(rows: Mapping[str, Sequence[float]], show: Callable[[float], str]) -> list[str]:
    """Quantities down, layers across."""
    lines, count = [], max(len(values) for values in rows.values())
    for start in range(0, count, PER_TABLE):
        stop = min(start + PER_TABLE, count)
        lines.append(line("", [f"layer {i}" for i in range(start, stop)]))
        lines += [line(label, [show(value) for value in values[start:stop]]) for label, values in rows.items()]
    return lines


def line(label: str, cells: Sequence[str]) -> str:
    """One row of a table."""
    return f"  {label:<{LABEL}}" + "".join(f"{cell:>{CELL}}" for cell in cells)


def wrapped(start: str, parts: Sequence[str]) -> list[str]:
    """The parts after `start`, separated by semicolons, continued under the first part."""
    lines, current = [], start
    for part in parts:
        if len(current) + len(part) > WIDTH and current.strip() != start.strip():
            lines.append(current.rstrip(" ;"))
            current = " " * len(start)
        current += part + "; "
    return [*lines, current.rstrip(" ;")]
