"""What causal checks give: how predictions moved, and how the algebra says that they must."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.stats import relative_errors


@dataclass(frozen=True, eq=False)
class Interchange:
    """Prompts that went on from another prompt's state at a depth.

    Args:
        rows: whose state was taken from the donor.
        clean: predictions without it [prompt, query, out].
        measured: with it.
        by_rule: what the exact rule says, or None where there is none.
    """

    depth: int
    rows: str
    clean: Tensor
    measured: Tensor
    by_rule: Tensor | None

    @property
    def effect(self) -> float:
        """Median relative change of the prediction."""
        return relative_errors(self.measured, self.clean).median().item()

    @property
    def error(self) -> float | None:
        """The largest relative difference from what the rule says."""
        return None if self.by_rule is None else relative_errors(self.measured, self.by_rule).max().item()

    def __str__(self) -> str:
        rule = "no rule to compare with" if self.error is None else f"the rule is off by {self.error:.2g} at worst"
        return f"depth {self.depth}, {self.rows} rows of another prompt: prediction moves by {self.effect:.3g}; {rule}"

    def to_dict(self) -> dict[str, Any]:
        return {"depth": self.depth, "rows": self.rows, "effect": self.effect, "error": self.error}


@dataclass(frozen=True, eq=False)
class Written:
    """Implicit weights moved by δ at a depth, and how the prediction moved.

    Args:
        expected: B δ, the move if w alone made the prediction and nothing came after [prompt, query, out].
        measured: the model's move.
        by_rule: the exact rule's, or None.
        by_closed_form: that of the rule's two words, or None.
    """

    depth: int
    rows: str
    expected: Tensor
    measured: Tensor
    by_rule: Tensor | None
    by_closed_form: Tensor | None

    @property
    def gain(self) -> float:
        """The share of B δ that reaches the prediction, ⟨move, B δ⟩ / ‖B δ‖²; median over prompts."""
        return gains(self.measured, self.expected).median().item()

    @property
    def gain_by_rule(self) -> float | None:
        return None if self.by_rule is None else gains(self.by_rule, self.expected).median().item()

    @property
    def error(self) -> float | None:
        """The largest difference from the rule's move, relative to ‖B δ‖."""
        return None if self.by_rule is None else _off(self.measured, self.by_rule, self.expected).max().item()

    @property
    def closed_form_error(self) -> float | None:
        """The median difference from the closed form's move, relative to ‖B δ‖."""
        found = self.by_closed_form
        return None if found is None else _off(self.measured, found, self.expected).median().item()

    def __str__(self) -> str:
        text = f"depth {self.depth}, w moved in {self.rows} rows: {self.gain:.4g} of it reaches the prediction"
        if self.error is not None:
            text += f"; the rule says {self.gain_by_rule:.4g} and is off by {self.error:.2g} at worst"
        return text + ("" if self.closed_form_error is None else f", the closed form by {self.closed_form_error:.2g}")

    def to_dict(self) -> dict[str, Any]:
        names = ("depth", "rows", "gain", "gain_by_rule", "error", "closed_form_error")
        return {name: getattr(self, name) for name in names}


def gains(
    measured: Float[Tensor, "prompt query out"], expected: Float[Tensor, "prompt query out"]
) -> Float[Tensor, "prompt"]:
    """⟨measured, expected⟩ / ‖expected‖² of each prompt."""
    return (measured * expected).flatten(1).sum(1) / expected.flatten(1).square().sum(1)


def _off(measured: Tensor, known: Tensor, size: Tensor) -> Float[Tensor, "prompt"]:
    return (measured - known).flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1)
