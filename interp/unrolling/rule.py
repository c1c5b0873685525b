"""UpdateRule: what each layer does to the rows of a prompt, at three levels that are never confused.

- exact: the layer's canonical heads, matrices as constants. Equals the model.
- words: all words of the alphabet, one coefficient each. What it misses is reported.
- core: the fewest words that reach a stated error on given prompts. Present only if the rule was fitted to prompts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import ROLES, BlockLayout
from interp.unrolling.circuits import Group
from interp.unrolling.moments import check_prompts, second_moments
from interp.unrolling.words import WeightFit, Word
from interp.visibility import machine_of

if TYPE_CHECKING:
    from interp.solvers.extracted_rule import ExtractedRule
    from interp.unrolling.fit import FunctionFit

Level = Literal["exact", "words", "core"]
LEVELS: tuple[Level, ...] = ("exact", "words", "core")
SYMBOLS = {"context": "S", "machine": "S_own", "context_and_self": "S_+self", "causal": "S_≤i", "all": "S_all"}


def symbol_of(rule: str) -> str:
    """The second moment of the rows that a visibility rule names: S, S_own, …; S_k for machine k."""
    machine = machine_of(rule)
    return SYMBOLS[rule] if machine is None else f"S_{machine}"


@dataclass(frozen=True)
class GroupRule:
    """One group of heads as an update of the rows of its roles, with its coefficients at the levels of words."""

    group: Group
    projected: Mapping[Word, float]  # least squares of the tensor on all words that matter
    fit: WeightFit
    words: Mapping[Word, float]  # the coefficients used at level "words": projected, or refitted on prompts
    core: Mapping[Word, float] = field(default_factory=dict)
    unread: tuple[str, ...] = ()  # blocks it writes that nothing reads: left out of words and norms

    def update(
        self, z: Float[Tensor, "batch row D"], S: Float[Tensor, "batch #row D D"], level: Level, layout: BlockLayout
    ) -> Float[Tensor, "batch row D"]:
        """Δz of rows z that see second moments S."""
        if level == "exact":
            return exact_update(self.group, z, S)
        out, features = torch.zeros_like(z), WordFeatures(z, S, layout)
        for word, coefficient in self.coefficients(level).items():
            out[..., layout.slices[word.into]] += coefficient * features[word]
        return out

    def coefficients(self, level: Level) -> Mapping[Word, float]:
        """word → coefficient at level "words" or "core"."""
        if level not in ("words", "core"):
            raise ValueError(f"the level {level!r} has no coefficients; those with coefficients are words and core")
        return self.core if level == "core" else self.words

    def label(self, word: Word) -> str:
        """The word with the symbol of the rows it sums over."""
        return word.text(symbol_of(self.group.rule))


@dataclass(frozen=True)
class WordFeatures:
    """Values of words for rows z [batch, row, D] that see second moments S [batch, row or 1, D, D]."""

    z: Tensor
    S: Tensor
    layout: BlockLayout

    def __getitem__(self, word: Word) -> Tensor:
        at = self.layout.slices
        moment = self.S[..., at[word.left], at[word.right]]
        return word.apply(self.z[..., at[word.row]], moment)


def exact_update(group: Group, z: Float[Tensor, "batch row D"], S: Float[Tensor, "batch #row D D"]) -> Tensor:
    """Σ_h z Q_h S V_h."""
    Q, V = group.Q.to(z), group.V.to(z)
    if S.shape[1] == 1:
        return sum((z @ q @ S[:, 0] @ v for q, v in zip(Q, V, strict=True)), torch.zeros_like(z))
    return torch.einsum("bra,hac,brcd,hdj->brj", z, Q, S, V)


@dataclass(frozen=True)
class LayerRule:
    """The groups of one layer; `live` names, by role, the blocks whose update reaches the output."""

    groups: tuple[GroupRule, ...]
    live: Mapping[str, tuple[str, ...]]

    def labelled(self, level: Level) -> dict[str, float]:
        """word → coefficient; where a layer has several groups, prefixed by the rows they act on."""
        several = len(self.groups) > 1
        return {
            (f"{'+'.join(item.group.roles)}: " if several else "") + item.label(word): value
            for item in self.groups
            for word, value in item.coefficients(level).items()
        }

    @property
    def weights_explained(self) -> float:
        """Share of the squared norm of the layer's live tensors that the words explain."""
        norm = sum(item.fit.norm**2 for item in self.groups)
        return 1 - sum(item.fit.residual**2 for item in self.groups) / norm if norm else 1.0


@dataclass(frozen=True)
class UpdateRule:
    """The update rule of a linear-attention stack.

    Args:
        layers: one LayerRule a layer.
        layout: the meaning of rows and columns.
        kernel: the attention kernel; with scale "n" every coefficient is divided by the number of context rows.
        source: where the coefficients of a level come from, "weights" or "function" (refitted on prompts).
        function: what fitting to prompts found, or None.
    """

    layers: tuple[LayerRule, ...]
    layout: BlockLayout
    kernel: AttentionKernel = field(default_factory=AttentionKernel)
    source: Mapping[str, str] = field(default_factory=lambda: {"words": "weights"})
    function: "FunctionFit | None" = None

    @property
    def levels(self) -> tuple[Level, ...]:
        return LEVELS if self.function is not None else LEVELS[:2]

    @property
    def per_n(self) -> bool:
        return self.kernel.scale == "n"

    @property
    def depth(self) -> int:
        return len(self.layers)

    def states(
        self, tokens: Float[Tensor, "batch token d_model"], level: Level = "words"
    ) -> Iterator[Float[Tensor, "batch token D"]]:
        """Block coordinates of all rows at depth 0, 1, ..., L."""
        self._check_level(level)
        z = self.layout.coordinates(check_prompts(tokens, self.layout))
        yield z
        for layer in range(self.depth):
            z = z + self.step(layer, z, level)
            yield z

    def step(self, layer: int, z: Float[Tensor, "batch token D"], level: Level) -> Float[Tensor, "batch token D"]:
        """The update of one layer on rows in block coordinates."""
        n = self.layout.n_context(z.shape[1])
        delta = torch.zeros_like(z)
        for item in self.layers[layer].groups:
            for role in item.group.roles:
                rows = self.layout.rows(role, z.shape[1])
                S = second_moments(z, self.layout, item.group.rule, role)
                delta[:, rows] += item.update(z[:, rows], S, level, self.layout)
        return delta / n if self.per_n else delta

    def predict(
        self, tokens: Float[Tensor, "batch token d_model"], level: Level = "words"
    ) -> Float[Tensor, "batch query out"]:
        """The rule's prediction for prompts."""
        return self.read(list(self.states(tokens, level))[-1])

    def read(self, z: Float[Tensor, "batch token D"]) -> Float[Tensor, "batch query out"]:
        """sign × read-out block of the query rows."""
        return self.layout.sign * z[:, -self.layout.n_query :, self.layout.slices[self.layout.readout]]

    def _check_level(self, level: str) -> None:
        if level not in self.levels:
            hint = "; pass prompts to unroll to select a core" if level == "core" else ""
            raise ValueError(f"the rule has no level {level!r}, it has: {', '.join(self.levels)}{hint}")

    def __str__(self) -> str:
        from interp.unrolling.render import to_text

        return to_text(self)

    def summary(self) -> str:
        """The rule in a few lines: what it is, and the core (all words where the rule was not fitted to prompts)."""
        from interp.unrolling.render import to_summary

        return to_summary(self)

    def latex(self) -> str:
        """The rule as LaTeX, amsmath's align* environments."""
        from interp.unrolling.latex import to_latex

        return to_latex(self)

    def sympy(self, level: Level = "words") -> list[dict[str, Any]]:
        """By layer, column block → sympy expression of the row's next value."""
        from interp.unrolling.latex import to_sympy

        return to_sympy(self, level)

    def python(self, level: Level | None = None) -> str:
        """Source of a self-contained numpy function `predict(tokens)`; the core if there is one, else the words."""
        from interp.unrolling.source import to_python

        return to_python(self, level or self.levels[-1])

    def solver(self, units: str = "own") -> "ExtractedRule":
        """The rule's closed form as a solver for `interp.solvers.iterate`: one step a layer, no more.

        Args:
            units: "own", the rule's coefficients as they are; or "norm", in units of 1/‖A_l‖², with the median norms
                that were measured when the rule was fitted to prompts, so that it runs on a matrix of any scale.

        Raises:
            ValueError: the rule has no closed form, with the reason; units="norm" of a rule that has seen no prompts.
        """
        from interp.unrolling.solver import to_solver

        return to_solver(self, units)

    def to_dict(self, exact: bool = False) -> dict[str, Any]:
        """Plain values for JSON; with `exact`, the matrices of the canonical heads too."""
        from interp.unrolling.plain import to_dict

        return to_dict(self, exact)


def live_part(layer: LayerRule, layout: BlockLayout, delta: Float[Tensor, "batch token D"]) -> Tensor:
    """The entries of an update that can reach the output, others zero."""
    mask = torch.zeros(delta.shape[1:], dtype=torch.bool)
    for role in ROLES:
        rows = layout.rows(role, delta.shape[1])
        for name in layer.live[role]:
            mask[rows, layout.slices[name]] = True
    return torch.where(mask.to(delta.device), delta, 0)
