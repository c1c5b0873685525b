"""The affine maps of a prompt: of the frozen model, and of the model itself (its tangent)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from interp.layout import BlockLayout
from interp.linearisation.asked import Values
from interp.linearisation.frozen import Frozen, freeze

NUMBERS = 2**22  # that a chunk of prompts holds in each of its activations


@dataclass(frozen=True, eq=False)
class AffineMap:
    """answer ≈ value + Σ slope · (tokens − at), one map a prompt.

    Args:
        at: the prompts.
        value: the answers there.
        slope: the derivative of every answer in every entry of the prompt.
    """

    at: Float[Tensor, "prompt token width"]
    value: Float[Tensor, "prompt query out"]
    slope: Float[Tensor, "prompt query out token width"]

    def __call__(self, tokens: Float[Tensor, "prompt token width"]) -> Float[Tensor, "prompt query out"]:
        """The map at tokens that take the place of the prompts."""
        return self.value + torch.einsum("pqotw,ptw->pqo", self.slope, tokens - self.at)

    def of_query(self, query: int = 0) -> tuple[Float[Tensor, "prompt out width"], Float[Tensor, "prompt out"]]:
        """The map of one query's own row: answer ≈ slope · row + constant, the context as it is."""
        queries = self.value.shape[1]
        if not 0 <= query < queries:
            raise ValueError(f"of_query: query={query} is none of the {queries} query rows, counted from 0")
        row = self.at.shape[1] - queries + query
        slope = self.slope[:, query, :, row]
        return slope, self.value[:, query] - torch.einsum("pow,pw->po", slope, self.at[:, row])


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A model at given prompts, three times: frozen, the frozen model's affine map, and the model's own tangent.

    None of them is the model: `report` says how far each can be trusted.
    """

    frozen: Frozen
    affine: AffineMap
    tangent: AffineMap

    @property
    def error_at_the_point(self) -> float:
        """Largest |frozen − model| at the prompts, over the largest |answer|: rounding, whatever is frozen."""
        model = self.frozen.model_answer(self.frozen.tokens)
        gap = (self.frozen(self.frozen.tokens) - model).abs().max()
        return (gap / model.abs().max()).item() if model.abs().max() > 0 else gap.item()

    @property
    def left_out(self) -> float:
        """‖slope of the frozen map − slope of the tangent‖ / ‖slope of the tangent‖: what runs through frozen parts."""
        gap, size = (self.affine.slope - self.tangent.slope).norm(), self.tangent.slope.norm()
        return (gap / size).item() if size else float(gap > 0)

    def __str__(self) -> str:
        return (
            f"linearisation, no algorithm and not exact: {self.frozen.summary()}\n"
            f"  at the prompts the frozen model differs from the model by {self.error_at_the_point:.2g}\n"
            f"  its derivative there leaves out {self.left_out:.3g} of the model's (relative, Frobenius), since frozen "
            "parts do not move"
        )


def linearise(
    model: Any,
    prompts: Any,
    layout: BlockLayout | None = None,
    parts: Sequence[str] = ("norms", "gates"),
) -> Linearisation:
    """The model linearised at prompts: see `freeze` for the arguments and the errors."""
    frozen = freeze(model, prompts, layout, parts)
    affine = _affine(frozen, frozen.answer, frozen.values)
    tangent = _affine(frozen, lambda tokens, values: frozen.asked(tokens), {})
    return Linearisation(frozen, affine, tangent)


def _affine(frozen: Frozen, answer: Callable[[Tensor, Values], Tensor], values: Values) -> AffineMap:
    """Value and Jacobian of a function of one prompt and its frozen values, at every prompt."""

    def one(tokens: Tensor, own: Values) -> tuple[Tensor, Tensor]:
        def both(z: Tensor) -> tuple[Tensor, Tensor]:
            found = answer(z[None], {name: value[None] for name, value in own.items()})[0]
            return found, found

        slope, value = jacrev(both, has_aux=True)(tokens)
        return slope, value

    tokens = frozen.tokens
    size = tokens.shape[1] * frozen.asked.model.cfg.d_model * max(1, frozen.asked.n_query)
    with torch.no_grad():
        slope, value = vmap(one, chunk_size=max(1, NUMBERS // size))(tokens, values)
    return AffineMap(tokens, value, slope)
