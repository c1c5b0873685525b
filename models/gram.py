"""Linear attention in Gram form: exact, at a cost that does not depend on the number of context rows.

The rows enter a layer only through the Gram matrices G_μ = Σ_k z_k z_kᵀ over the context rows of each machine μ (one
machine where all rows see the whole context; MATH §2):

    context rows of μ:  U_μ = Σ_h Q_h G_μ V_h,         z ← z (I + U_μ),  hence  G_μ ← (I + U_μ)ᵀ G_μ (I + U_μ)
    query rows:         U = Σ_h Q_h (Σ_μ G_μ) V_h,     z ← z (I + U)

with Q_h = W_Q W_Kᵀ (the scale included) and V_h = W_V W_O, and each sum over the heads and machines that the layout
lets these rows see.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import ROLES, BlockLayout, machine_of
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

    def update(
        self, seen: Sequence[Float[Tensor, "batch d_model d_model"] | None]
    ) -> Float[Tensor, "batch d_model d_model"]:
        """I + U for rows that see, by head, the Gram matrix `seen[h]`, or nothing."""
        eye = torch.eye(self.Q.shape[-1], dtype=self.Q.dtype, device=self.Q.device)
        heads = zip(self.Q, self.V, seen, strict=True)
        return sum((Q @ gram @ V for Q, V, gram in heads if gram is not None), start=eye)


@dataclass(frozen=True)
class Routing:
    """Who sees the rows of machine μ in head h: they themselves if `context[h][μ]`, the queries if `query[h][μ]`."""

    context: tuple[tuple[bool, ...], ...]
    query: tuple[tuple[bool, ...], ...]

    @classmethod
    def of(cls, layout: BlockLayout, n_heads: int) -> "Routing":
        """The routing of a layout.

        Raises:
            ValueError: context rows see rows of other machines, or a row sees itself or the rows before it.
        """
        rules = layout.head_visibility(n_heads)
        return cls(*(tuple(_machines(rule.of(role), role, layout.machines) for rule in rules) for role in ROLES))

    @property
    def one_step(self) -> bool:
        """Do query rows take the same step as the context rows of the only machine."""
        return self.context == self.query and len(self.context[0]) == 1


def _machines(rule: str, role: str, machines: int) -> tuple[bool, ...]:
    """For each machine, is it seen by the rows of a role: by its own rows, or by the queries."""
    if rule == "none":
        return (False,) * machines
    if machine_of(rule) is not None:
        return tuple(machine == machine_of(rule) for machine in range(machines))
    if rule == ("context" if role == "query" or machines == 1 else "machine"):
        return (True,) * machines
    raise ValueError(
        f"the Gram form has one matrix a machine, and {role} rows that see {rule!r} need more; use the token forward"
    )


@dataclass(frozen=True)
class GramState:
    """A batch of prompts as a layer sees them.

    Args:
        gram: G_μ = Σ_k z_k z_kᵀ over the context rows of machine μ [batch, machine, d_model, d_model].
        rows: the query rows [batch, query, d_model].
    """

    gram: Float[Tensor, "batch machine d_model d_model"]
    rows: Float[Tensor, "batch query d_model"]

    @classmethod
    def of(cls, tokens: Float[Tensor, "batch token d_model"], n_query: int, machines: int = 1) -> "GramState":
        """The state of prompts whose last `n_query` rows are queries, the others split evenly over the machines."""
        context = tokens[:, :-n_query].unflatten(1, (machines, -1))
        return cls(context.mT @ context, tokens[:, -n_query:])

    def after(self, layer: LayerMatrices, routing: Routing) -> "GramState":
        """The state after one layer."""
        context = [layer.update(self._seen_by_context(machine, routing)) for machine in range(self.gram.shape[1])]
        query = context[0] if routing.one_step else layer.update(self._seen_by_query(routing))
        step = torch.stack(context, dim=1) if len(context) > 1 else context[0][:, None]
        return GramState(step.mT @ self.gram @ step, self.rows @ query)

    def rows_after(self, layer: LayerMatrices, routing: Routing) -> Float[Tensor, "batch query d_model"]:
        """The query rows after one layer."""
        return self.rows @ layer.update(self._seen_by_query(routing))

    def _seen_by_context(self, machine: int, routing: Routing) -> list[Tensor | None]:
        return [self.gram[:, machine] if sees[machine] else None for sees in routing.context]

    def _seen_by_query(self, routing: Routing) -> list[Tensor | None]:
        whole = self.gram.sum(1) if any(map(all, routing.query)) else None
        return [
            None if not any(sees) else whole if all(sees) else self.gram[:, list(sees)].sum(1) for sees in routing.query
        ]


def query_rows(
    state: GramState, layers: Sequence[LayerMatrices], routing: Routing
) -> Float[Tensor, "batch query d_model"]:
    """The query rows after all layers (the last layer's Gram matrices are never formed)."""
    for layer in layers[:-1]:
        state = state.after(layer, routing)
    return state.rows_after(layers[-1], routing)


def layer_matrices(model: HookedTransformer, n_context: int) -> list[LayerMatrices]:
    """The matrices of a model's layers, for prompts of `n_context` context rows.

    Raises:
        ValueError: the model is more than linear attention.
    """
    cfg = model.cfg
    if not cfg.is_linear_attention:
        raise ValueError(
            f"the Gram form is exact for attention-only linear models without read-in, biases, norms and positions, "
            f"and this model has the kernel {cfg.kernel}; use its token forward"
        )
    scale = cfg.kernel.scale_factor(cfg.d_head, n_context)
    return [
        LayerMatrices(scale * attn.W_Q @ attn.W_K.mT, attn.W_V @ attn.W_O)
        for attn in (block.attn for block in model.blocks)
    ]
