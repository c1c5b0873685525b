"""Aligned tables of at most 100 columns: labels down, layers across, as many layers side by side as fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence

WIDTH = 100
LABEL = 28
CELL = 14
ABSENT = "·"


def coefficient_table(layers: Sequence[Mapping[str, float]], digits: int) -> list[str]:
    """Words down, layers across; what a layer does not have is a dot."""
    lines, labels = [], list(dict.fromkeys(label for words in layers for label in words))
    label_width, cell = _label_width(labels), max(CELL, digits + 8)
    for part in _parts(len(layers), label_width, cell):
        lines.append(line("word", [f"layer {layer}" for layer in part], label_width, cell))
        for label in labels:
            values = [layers[layer].get(label) for layer in part]
            cells = [ABSENT if value is None else f"{value:.{digits}g}" for value in values]
            lines.append(line(label, cells, label_width, cell))
    return lines


def by_layer(rows: Mapping[str, Sequence[float]], show: Callable[[float], str]) -> list[str]:
    """Quantities down, layers across."""
    lines, label_width = [], _label_width(rows)
    for part in _parts(max(len(values) for values in rows.values()), label_width, CELL):
        lines.append(line("", [f"layer {layer}" for layer in part], label_width))
        for label, values in rows.items():
            lines.append(line(label, [show(values[layer]) for layer in part], label_width))
    return lines


def line(label: str, cells: Sequence[str], label_width: int = LABEL, cell: int = CELL) -> str:
    """One row of a table."""
    return f"  {label:<{label_width}}" + "".join(f"{text:>{cell}}" for text in cells)


def wrapped(start: str, parts: Sequence[str]) -> list[str]:
    """The parts after `start`, separated by semicolons, continued under the first part."""
    lines, current = [], start
    for part in parts:
        if len(current) + len(part) > WIDTH and current.strip() != start.strip():
            lines.append(current.rstrip(" ;"))
            current = " " * len(start)
        current += part + "; "
    return [*lines, current.rstrip(" ;")]


def _label_width(labels: Sequence[str] | Mapping[str, object]) -> int:
    return max(LABEL, *(len(label) for label in labels)) if labels else LABEL


def _parts(count: int, label_width: int, cell: int) -> Iterator[range]:
    """The layers of each table."""
    fitting = max(1, (WIDTH - 2 - label_width) // cell)
    for start in range(0, count, fitting):
        yield range(start, min(start + fitting, count))
