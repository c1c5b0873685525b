"""The context of prompts computed once, and many queries answered from it.

Where no context row sees a query, what a block makes of the context does not depend on the query. Keys and values of
the context rows of every block are then all that a query needs: m queries of one context of n rows cost n + m rows
instead of m (n + 1).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from models.attention import Attention, PerHead, project
from models.strict import is_hooked
from models.transformer import HookedTransformer

QUERIES_MEET = ("causal", "all")
"""Rules by which several queries of one prompt see each other."""


@dataclass(frozen=True, eq=False)
class ContextCache:
    """Keys and values of the context rows of every block; `answer` gives what whole forward passes would, to rounding.

    A query is answered as the only one of its prompt, or as one of several that do not see each other, which is the
    same. Nothing here carries gradients, and weights that change later make a cache stale.

    Args:
        model: whose context it is.
        keys, values: of every block.
        n_context: how many rows the context has.
    """

    model: HookedTransformer
    keys: tuple[Float[Tensor, "batch context head d_head"], ...]
    values: tuple[Float[Tensor, "batch context head d_head"], ...]
    n_context: int

    @classmethod
    @torch.no_grad()
    def of(cls, model: HookedTransformer, context: Tensor) -> "ContextCache":
        """The cache of contexts [batch, row, d_in], by one forward pass with queries of zeros.

        Raises:
            ValueError: context rows see queries, queries see each other or have positions of their own, or the model
                carries hooks; or the context does not fit the model.
        """
        _check(model)
        if context.ndim != 3:
            raise ValueError(
                f"ContextCache: a context is [batch, row, {model.cfg.token_width}], and this one has the shape "
                f"{list(context.shape)}"
            )
        zeros = context.new_zeros(context.shape[0], model.layout.n_query, context.shape[2])
        with _kept(model, "hook_k") as keys, _kept(model, "hook_v") as values:
            model(torch.cat([context, zeros], dim=1))
        n = context.shape[1]
        return cls(model, tuple(k[:, :n] for k in keys), tuple(v[:, :n] for v in values), n)

    @torch.no_grad()
    def answer(self, queries: Tensor) -> Float[Tensor, "batch query d_out"]:
        """The output of query rows [batch, query, d_in], any number of them to each context.

        Raises:
            ValueError: another batch, width, dtype or device than that of the context.
        """
        self._check_queries(queries)
        model = self.model
        z = model.embed(queries)
        if model.pos_embed is not None:
            z = z + model.pos_embed.W_pos[self.n_context]
        for block, keys, values in zip(model.blocks, self.keys, self.values, strict=True):
            z = z + self._attend(block.attn, block.ln1(z), keys, values)
            if block.mlp is not None:
                z = z + block.mlp(block.ln2(z))
        return model.unembed(model.ln_final(z))

    def _attend(
        self, attn: Attention, z: Float[Tensor, "batch query d_model"], keys: PerHead, values: PerHead
    ) -> Float[Tensor, "batch query d_model"]:
        """Attention of query rows to the context and, in heads in which a query sees itself, to themselves."""
        kernel, n = attn.cfg.kernel, self.n_context
        allowed = attn.masks(n + attn.layout.n_query, z.device)[:, n : n + 1, : n + 1].expand(-1, z.shape[1], -1)
        sees_itself = bool(allowed[..., n].any())
        q, k, v = (project(z, getattr(attn, f"W_{name}"), getattr(attn, f"b_{name}")) for name in "QKV")
        scores = kernel.scores(q.transpose(1, 2), keys.transpose(1, 2), n, attn.learned_features)
        if sees_itself:
            scores = torch.cat([scores, _own_scores(attn, q, k, n)], dim=-1)
        pattern = kernel.pattern(scores, allowed[..., : scores.shape[-1]], attn.blind_rows)
        mixed = pattern[..., :n] @ values.transpose(1, 2)
        if sees_itself:
            mixed = mixed + pattern[..., n:] * v.transpose(1, 2)
        return functional.linear(mixed.transpose(1, 2).flatten(-2), attn.W_O.flatten(0, 1).T, attn.b_O)

    def _check_queries(self, queries: Tensor) -> None:
        weights, batch = self.model.blocks[0].attn.W_Q, self.keys[0].shape[0]
        expected = (batch, self.model.cfg.token_width)
        if queries.ndim != 3 or (queries.shape[0], queries.shape[2]) != expected:
            raise ValueError(
                f"ContextCache.answer: this cache takes queries [{batch}, query, {expected[1]}], one batch entry a "
                f"context, and these have the shape {list(queries.shape)}"
            )
        if queries.dtype != weights.dtype or queries.device != weights.device:
            raise ValueError(
                f"ContextCache.answer: the queries are {queries.dtype} on {queries.device}, the weights "
                f"{weights.dtype} on {weights.device}; bring them together with queries.to(...)"
            )


@contextmanager
def _kept(model: HookedTransformer, point: str) -> Iterator[list[Tensor]]:
    """What passes a hook point of the attention of every block, in the order of the blocks."""
    kept: list[Tensor] = []
    handles = [
        getattr(block.attn, point).register_forward_hook(lambda module, given, passed: kept.append(passed))
        for block in model.blocks
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def _own_scores(attn: Attention, q: PerHead, k: PerHead, n_context: int) -> Float[Tensor, "batch head token 1"]:
    """The score of every row with itself: rows as a batch, so that no pair of different rows is formed."""
    batch, rows = q.shape[:2]
    q, k = (u.flatten(0, 1)[:, :, None] for u in (q, k))
    own = attn.cfg.kernel.scores(q, k, n_context, attn.learned_features)
    return own[..., 0].unflatten(0, (batch, rows)).transpose(1, 2)


def _check(model: HookedTransformer) -> None:
    """Raise if answers depend on more than the context and the query."""
    layout = model.layout
    rules = layout.head_visibility(model.cfg.n_heads)
    if "all" in {rule.context for rule in rules}:
        raise ValueError(
            "ContextCache: context rows with the visibility 'all' see the queries, so that no context can be computed "
            "without them; give them another rule, such as 'context'"
        )
    if layout.n_query > 1 and (meeting := [rule.query for rule in rules if rule.query in QUERIES_MEET]):
        raise ValueError(
            f"ContextCache: the {layout.n_query} queries of a prompt see each other (visibility {meeting[0]!r}); give "
            "the layout n_query=1, or the rule 'context_and_self'"
        )
    if layout.n_query > 1 and model.pos_embed is not None:
        raise ValueError(
            f"ContextCache: the model has a position for each of the {layout.n_query} queries of a prompt, so that "
            "an answer depends on its row; give the layout n_query=1"
        )
    hooked = [name for name, point in model.hook_dict.items() if is_hooked(point)]
    if hooked:
        raise ValueError(f"ContextCache: the model has a hook on {hooked[0]!r}, which answers from a cache would skip")
