"""What machines send to the query rows when the context rows lie on several machines, and how much that is.

A layer is a round. The query rows step on S = Σ_μ S_μ, S_μ = Σ zᵀz over the rows of machine μ, so a machine that knows
the query rows computes its part of every word, and the receiver adds up: for EAGLE with B = z_x, D = z_y of the n'
queries, B S_μ,xx (n' × d) into B and B S_μ,xy (n' × d') into D.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.unrolling.rule import GroupRule, LayerRule, Level, UpdateRule
from interp.unrolling.spectral import input_block
from interp.unrolling.words import Word, inner_products
from interp.visibility import machine_of

AGREEMENT = 0.05
"""Relative distance of a machine's coefficients from their mean up to which machines are said to agree."""
RANK_TOLERANCE = 1e-6
"""Singular values below this part of the largest do not count as a direction that is sent."""
OWN_MACHINE = "machine"


@dataclass(frozen=True)
class Message:
    """One word of the query rows, as a machine's part of it.

    Args:
        word: z_row S_μ[left, right] → into, or the trace.
        shape: of what is computed, n' × width.
        coefficients: by machine, what the receiver multiplies it with.
        shared: is there one head for all machines, so that the coefficients are one number.
    """

    word: Word
    shape: tuple[int, int]
    coefficients: tuple[float, ...]
    shared: bool

    @property
    def mean(self) -> float:
        return sum(self.coefficients) / len(self.coefficients)

    def to_dict(self) -> dict[str, Any]:
        values = {"coefficients": list(self.coefficients), "mean": self.mean, "shared": self.shared}
        return {"word": self.word.text("S_μ"), "shape": list(self.shape), **values}


@dataclass(frozen=True)
class Round:
    """One layer.

    Args:
        apart: the largest distance of a machine's coefficients from their mean, relative, in the norm of the words.
        up: floats a machine sends: its part of the update, as wide as the blocks that are written or, if that is less,
            as the rank of V there.
        down: floats a machine is sent first: the query rows, as wide as the blocks that are read, or the rank of Q.
        moments: floats of the second moments that the words need, which a machine could send instead, knowing no query.
    """

    messages: tuple[Message, ...]
    apart: float
    up: int
    down: int
    moments: int

    def to_dict(self) -> dict[str, Any]:
        counts = {"up": self.up, "down": self.down, "moments": self.moments}
        return {"messages": [message.to_dict() for message in self.messages], "apart": self.apart, "floats": counts}


@dataclass(frozen=True)
class Messages:
    """What machines tell the query rows, a round a layer.

    Args:
        level: of the coefficients, "core" where the rule has one.
        letters: the query rows' blocks as they are printed: B for the inputs, D for what is read out.
        local: do context rows see their own machine only; if not, machines exchange more than is counted here.
        gradient: floats of one round of gradient averaging, each way: ∇(w) is d × d'. None without an input block.
    """

    machines: int
    n_query: int
    level: Level
    letters: dict[str, str]
    rounds: tuple[Round, ...]
    local: bool
    gradient: int | None

    @property
    def agree(self) -> bool:
        """Do the coefficients agree over machines in every layer, within `AGREEMENT`."""
        return max(entry.apart for entry in self.rounds) <= AGREEMENT

    def to_dict(self) -> dict[str, Any]:
        head = {"machines": self.machines, "n_query": self.n_query, "level": self.level, "local": self.local}
        tail = {"agree": self.agree, "gradient_averaging": self.gradient}
        return {**head, **tail, "rounds": [entry.to_dict() for entry in self.rounds]}

    def __str__(self) -> str:
        from interp.unrolling.message_text import to_lines

        return "\n".join(to_lines(self))


def messages(rule: UpdateRule) -> Messages:
    """What the machines of a rule send to the query rows in each layer.

    Raises:
        ValueError: the layout has one machine.
    """
    layout = rule.layout
    if layout.machines == 1:
        raise ValueError("messages: the layout has one machine, which sends nothing; state machines in the BlockLayout")
    level = rule.levels[-1]
    inputs = _inputs(layout)
    letters = {inputs: "B", layout.readout: "D"} if inputs else {layout.readout: "D"}
    return Messages(
        machines=layout.machines,
        n_query=layout.n_query,
        level=level,
        letters={name: letters.get(name, f"z_{name}") for name in layout.columns},
        rounds=tuple(_round(layer, layout, level) for layer in rule.layers),
        local=all(_is_local(layer) for layer in rule.layers),
        gradient=layout.widths[inputs] * layout.widths[layout.readout] if inputs else None,
    )


def _inputs(layout: BlockLayout) -> str | None:
    try:
        return input_block(layout)
    except ValueError:
        return None


def _is_local(layer: LayerRule) -> bool:
    """Do context rows whose update matters see the rows of their own machine only."""
    seen = [item.group.rule for item in layer.groups if "context" in item.group.roles]
    return not layer.live["context"] or all(name == OWN_MACHINE or machine_of(name) is not None for name in seen)


def _round(layer: LayerRule, layout: BlockLayout, level: Level) -> Round:
    groups = [item for item in layer.groups if "query" in item.group.roles]
    found = tuple(_messages(groups, layer.live["query"], layout, level))
    read, written = {entry.word.row for entry in found}, {entry.word.into for entry in found}
    for_machine = [[item for item in groups if _serves(item, machine)] for machine in range(layout.machines)]
    return Round(
        messages=found,
        apart=_apart(found, layout),
        up=layout.n_query * max(_rank([item.group.V for item in mine], layout, written) for mine in for_machine),
        down=layout.n_query * max(_rank([item.group.Q.mT for item in mine], layout, read) for mine in for_machine),
        moments=_moments([entry.word for entry in found], layout),
    )


def _serves(item: GroupRule, machine: int) -> bool:
    return machine_of(item.group.rule) in (None, machine)


def _messages(groups: Sequence[GroupRule], live: Sequence[str], layout: BlockLayout, level: Level) -> Iterable[Message]:
    """Every word of the query rows, the coefficients of all heads that serve a machine added up."""
    words = dict.fromkeys(word for item in groups for word in item.coefficients(level) if word.into in live)
    for word in words:
        by_machine = [0.0] * layout.machines
        for item in groups:
            for machine in range(layout.machines):
                by_machine[machine] += item.coefficients(level).get(word, 0.0) if _serves(item, machine) else 0.0
        shared = all(machine_of(item.group.rule) is None for item in groups if word in item.coefficients(level))
        width = layout.widths[word.into if word.trace else word.right]
        yield Message(word, (layout.n_query, width), tuple(by_machine), shared)


def _apart(found: Sequence[Message], layout: BlockLayout) -> float:
    if not found:
        return 0.0
    gram = inner_products([entry.word for entry in found], layout.widths)
    coefficients = torch.tensor([entry.coefficients for entry in found], dtype=torch.float64)
    mean = coefficients.mean(1, keepdim=True)

    def norm(columns: Float[Tensor, "word machine"]) -> Tensor:
        return (columns * (gram @ columns)).sum(0).clamp(min=0).sqrt()

    size = norm(mean)[0]
    return (norm(coefficients - mean).max() / size).item() if size else float(coefficients.any())


def _rank(matrices: Sequence[Float[Tensor, "head D D"]], layout: BlockLayout, blocks: set[str]) -> int:
    """Directions among the columns of some blocks that the matrices, one below the other, fill."""
    columns = [i for name in layout.columns if name in blocks for i in range(*layout.slices[name].indices(10**9))]
    if not matrices or not columns:
        return 0
    stacked = torch.cat(list(matrices))[..., columns].flatten(0, 1)
    return int(torch.linalg.matrix_rank(stacked, rtol=RANK_TOLERANCE))


def _moments(words: Iterable[Word], layout: BlockLayout) -> int:
    """Numbers in the blocks of S_μ that the words read, symmetric blocks once; 1 where only a trace reads a block."""
    words, widths = list(words), layout.widths
    full = {frozenset((word.left, word.right)) for word in words if not word.trace}
    traces = {frozenset((word.left, word.right)) for word in words if word.trace} - full
    sizes = [(widths[min(pair)], widths[max(pair)], len(pair) == 1) for pair in full]
    return sum(a * (a + 1) // 2 if same else a * b for a, b, same in sizes) + len(traces)
