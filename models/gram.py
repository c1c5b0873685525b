"""Linear attention in Gram form: exact, at a cost that does not depend on the number of context rows.

When all rows see the same context, the rows enter a layer only through their Gram matrix G = Σ_k z_k z_kᵀ over the
context (MATH §2):

    U = Σ_h Q_h G V_h,     z ← z (I + U) for every row z,     hence  G ← (I + U)ᵀ G (I + U)

with Q_h = W_Q W_Kᵀ (the scale included) and V_h = W_V W_O.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import Visibility
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class LayerMatrices:
    """What one layer of linear attention does, as matrices: z ← z + Σ_h z Q_h G V_h.

    Args:
        Q: W_Q W_Kᵀ a head, with the scale of the scores [head, d_model, d_model].
        V: W_V W_O a head [head, d_model, d_model].
    """

    Q: Float[Tensor, "head d_model d_model"]
    V: Float[Tensor, "head d_model d_model"]

    def update(self, gram: Float[Tensor, "batch d_model d_model"]) -> Float[Tensor, "batch d_model d_model"]:
        """I + U for each Gram matrix."""
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        return sum((Q @ gram @ V for Q, V in zip(self.Q, self.V, strict=True)), start=eye)


@dataclass(frozen=True)
class GramState:
    """A batch of prompts as a layer sees them.

    Args:
        gram: G = Σ_k z_k z_kᵀ over the context rows [batch, d_model, d_model].
        rows: the query rows [batch, query, d_model].
    """

    gram: Float[Tensor, "batch d_model d_model"]
    rows: Float[Tensor, "batch query d_model"]

    @classmethod
    def of(cls, tokens: Float[Tensor, "batch token d_model"], n_query: int) -> "GramState":
        """The state of prompts whose last `n_query` rows are queries."""
        context = tokens[:, :-n_query]
        return cls(context.mT @ context, tokens[:, -n_query:])

    def after(self, layer: LayerMatrices) -> "GramState":
        """The state after one layer."""
        step = layer.update(self.gram)
        return GramState(step.mT @ self.gram @ step, self.rows @ step)


def query_rows(state: GramState, layers: Sequence[LayerMatrices]) -> Float[Tensor, "batch query d_model"]:
    """The query rows after all layers (the last layer's Gram matrix is never formed)."""
    for layer in layers[:-1]:
        state = state.after(layer)
    return state.rows @ layers[-1].update(state.gram)


def layer_matrices(model: HookedTransformer, n_context: int) -> list[LayerMatrices]:
    """The matrices of a model's layers, for prompts of `n_context` context rows.

    Raises:
        ValueError: the model is more than linear attention in which every row sees the whole context.
    """
    cfg = model.cfg
    plain = cfg.attn_only and cfg.d_in is None and cfg.d_out is None and not cfg.use_biases
    if not (
        cfg.kernel.is_linear and plain and cfg.normalization_type is None and cfg.positional_embedding_type is None
    ):
        raise ValueError(
            f"the Gram form is exact for attention-only linear models without read-in, biases, norms and positions, "
            f"and this model has the kernel {cfg.kernel}; use its token forward"
        )
    if any(rule != Visibility("context", "context") for rule in model.layout.head_visibility(cfg.n_heads)):
        raise ValueError("the Gram form needs every row to see exactly the context; use the model's token forward")
    scale = cfg.kernel.scale_factor(cfg.d_head, n_context)
    return [
        LayerMatrices(scale * attn.W_Q @ attn.W_K.mT, attn.W_V @ attn.W_O)
        for attn in (block.attn for block in model.blocks)
    ]
