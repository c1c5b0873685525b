"""What machines send, as text."""

from collections.abc import Sequence

from interp.unrolling.messages import AGREEMENT, Message, Messages
from interp.unrolling.tables import by_layer, coefficient_table, wrapped


def to_lines(found: Messages) -> list[str]:
    """The section of a rule's text."""
    labels = [{entry.word.text("S_μ"): entry.mean for entry in part.messages} for part in found.rounds]
    floats: dict[str, Sequence[float]] = {
        "up, a machine": [part.up for part in found.rounds],
        "down, a machine": [part.down for part in found.rounds],
        "second moments instead, up": [part.moments for part in found.rounds],
    }
    if found.gradient is not None:
        floats["gradient averaging, each way"] = [found.gradient] * len(found.rounds)
    return [
        f"messages: what machine μ of {found.machines} sends to the query rows, one round a layer",
        *_sent(found),
        *wrapped("  ", [f"{letter} = z_{name} of the {found.n_query} query rows" for name, letter in _short(found)]),
        *(["  a machine adds up its parts into one block, with their coefficients, and sends the sum"] * _added(found)),
        *([] if found.local else ["  context rows see other machines as well: what that costs is not counted here"]),
        f"the receiver's coefficients, level {found.level}, {_agreement(found)}",
        *coefficient_table(labels, 6),
        *by_layer({"machines apart, relative": [part.apart for part in found.rounds]}, lambda value: f"{value:.3g}"),
        "floats a round",
        *by_layer(floats, lambda value: f"{value:.0f}"),
    ]


def _added(found: Messages) -> bool:
    """Do several words go into one block."""
    into = [[entry.word.into for entry in part.messages] for part in found.rounds]
    return any(len(set(blocks)) < len(blocks) for blocks in into)


def _short(found: Messages) -> list[tuple[str, str]]:
    return [(name, letter) for name, letter in found.letters.items() if letter in ("B", "D")]


def _agreement(found: Messages) -> str:
    if all(entry.shared for part in found.rounds for entry in part.messages):
        return "one number for all machines, which share a head"
    verdict = "machines agree" if found.agree else "machines DO NOT agree"
    return f"mean over machines; {verdict} within {AGREEMENT:g}"


def _sent(found: Messages) -> list[str]:
    """What is sent, with its shape; layers that send the same on one line."""
    spoken = [[_spoken(entry, found.letters) for entry in part.messages] or ["nothing"] for part in found.rounds]
    lines, first = [], 0
    for index in range(1, len(spoken) + 1):
        if index == len(spoken) or spoken[index] != spoken[first]:
            where = f"layer {first}" if index == first + 1 else f"layers {first} to {index - 1}"
            lines += wrapped(f"  {where:<14}  ", spoken[first])
            first = index
    return lines


def _spoken(entry: Message, letters: dict[str, str]) -> str:
    word, (rows, width) = entry.word, entry.shape
    comma = "" if len(word.left) == len(word.right) == 1 else ","
    moment, row = f"S_μ,{word.left}{comma}{word.right}", letters[word.row]
    value = f"tr({moment}) {row}" if word.trace else f"{row} {moment}"
    return f"{value} ({rows} × {width}) into {letters[word.into]}"
