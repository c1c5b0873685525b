"""Foreign: a model of someone else's as one of ours, with where it came from, what was assumed, and its parity."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.foreign.tokens import TokenForm
from models.prompts import Prompts
from models.transformer import HookedTransformer

PARITY_TOLERANCE = 1e-10
Array = np.ndarray


class ForeignError(ValueError):
    """A file of someone else's cannot be taken; the message says what is wrong with it and how to mend it."""


@dataclass(frozen=True)
class Parity:
    """Our model against another forward pass, written from the file's own conventions, in float64 on random tokens.

    Args:
        reference: what was compared with.
        error: largest absolute difference over the largest absolute value of the reference.
        rows: how many rows of tokens were compared.
    """

    reference: str
    error: float
    rows: int
    tolerance: float = PARITY_TOLERANCE

    @property
    def holds(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return f"parity with {self.reference}: relative error {self.error:.2g} on {self.rows} rows ({verdict})"

    def to_dict(self) -> dict[str, Any]:
        return {"reference": self.reference, "error": self.error, "rows": self.rows, "tolerance": self.tolerance}


@dataclass(frozen=True)
class Foreign:
    """A model of someone else's, converted.

    Args:
        model: the same function as a `HookedTransformer`; its layout says what the columns mean.
        form: how prompts become its tokens; None if the layout does not say.
        provenance: source file, its SHA-256, loader, options; plain values for JSON.
        notes: what was assumed or changed on the way, a sentence each.
        parity: the check against the file's own conventions; None if it could not be run, and a note says why.
    """

    model: HookedTransformer
    form: TokenForm | None
    provenance: Mapping[str, Any]
    notes: tuple[str, ...]
    parity: Parity | None

    @property
    def layout(self) -> BlockLayout:
        return self.model.layout

    def tokens(self, prompts: Prompts) -> Float[Tensor, "batch token d_in"]:
        """The tokens that the model takes for prompts, in the dtype of the model."""
        if self.form is None:
            raise ForeignError(
                f"how prompts become tokens is not known for the column blocks {self.layout.widths}; build the tokens"
            )
        return self.form(prompts).to(self.model.dtype)

    @torch.no_grad()
    def predict(self, prompts: Prompts) -> Float[Tensor, "batch query d_out"]:
        """The model's answers to the queries of prompts."""
        return self.model.predict(self.tokens(prompts))

    def metadata(self) -> dict[str, Any]:
        """What `checkpoints.save` keeps beside the weights."""
        return {
            "source": dict(self.provenance),
            "notes": list(self.notes),
            "parity": None if self.parity is None else self.parity.to_dict(),
            "tokens": None if self.form is None else self.form.to_dict(),
        }


def check_parity(
    model: HookedTransformer,
    reference: Callable[[Array], Array],
    name: str,
    stream: bool = False,
    n_context: int = 6,
) -> Parity:
    """Compare the outputs of every row, or the last residual stream, on four random prompts of rows of norm about 1.

    Raises:
        ForeignError: they differ, so the file does not follow the conventions of its loader.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (4, n_context + model.layout.n_query, model.cfg.token_width)
    tokens = shape[-1] ** -0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    with np.errstate(all="ignore"):
        ours, theirs = _ours(model, tokens, stream), reference(tokens.numpy())
        error = float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), np.finfo(float).tiny))
    parity = Parity(name, error if math.isfinite(error) else math.inf, shape[0] * shape[1])
    if not parity.holds:
        raise ForeignError(
            f"the converted model is not the model of the file: {parity}; give the options it was made with"
        )
    return parity


@torch.no_grad()
def _ours(model: HookedTransformer, tokens: Tensor, stream: bool) -> Array:
    model = copy.deepcopy(model).double()
    if not stream:
        return model(tokens).numpy()
    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    return model.run_with_cache(tokens, names_filter=last)[1][last].numpy()
