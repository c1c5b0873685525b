"""Implicit weights and their sensitivity to the labels, by derivatives of the forward pass and by asking it questions.

With f_l(b, C) the read-out of the query row at depth l, b its inputs and C the labels,

    w_l = ∂f_l/∂b        by Jacobian, or by the answers to unit-vector queries, f_l(e_j, C) − f_l(0, C)
    ∂w_l/∂C = ∂²f_l/∂b∂C

Where f is linear in the query both give one w_l for all queries. Elsewhere w_l is the local weight at this query, and
`nonlinearity` says how far it changes nearby.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacfwd, jacrev, vmap

from interp.decoding.forward import Forward

NUMBERS = 2**18  # that a chunk of prompts holds in each of its activations; more is slower, out of the caches


def weights_by_jacobian(
    forward: Forward, b: Float[Tensor, "prompt d"] | None = None
) -> Float[Tensor, "depth prompt d out"]:
    """w_l = ∂f_l/∂b at the prompts' own queries, or at others."""

    def jacobian(u: Tensor, query: Tensor) -> Tensor:
        return jacfwd(lambda b: _read_one(forward, u, b, None))(query)

    found = _over_prompts(forward, jacobian, forward.u.shape[2], forward.b if b is None else b)
    return found.permute(1, 0, 3, 2)


def weights_by_queries(forward: Forward) -> Float[Tensor, "depth prompt d out"]:
    """w_l by the d unit vectors as queries, less the answer to the query 0. No derivative is taken."""
    prompts, d = forward.b.shape
    with torch.no_grad():
        asked = [forward.read(forward.placed(forward.u, e.expand(prompts, -1))) for e in torch.eye(d).to(forward.u)]
        nothing = forward.read(forward.placed(forward.u, torch.zeros_like(forward.b)))
    return torch.stack([answer - nothing for answer in asked], dim=2)


def label_derivatives(
    forward: Forward,
) -> tuple[Float[Tensor, "depth prompt out n label"], Float[Tensor, "depth prompt d out n label"]]:
    """∂f_l/∂C, how the answer moves with the labels, and ∂²f_l/∂b∂C = ∂w_l/∂C."""

    def both(u: Tensor, query: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
        def sensitivity(b: Tensor) -> tuple[Tensor, Tensor]:
            value = jacrev(lambda labels: _read_one(forward, u, b, labels))(C)
            return value, value

        mixed, value = jacfwd(sensitivity, has_aux=True)(query)
        return value, mixed

    answers = (forward.model.cfg.n_layers + 1) * forward.C.shape[2]
    value, mixed = _over_prompts(forward, both, answers * forward.b.shape[1], forward.b, forward.C)
    return value.transpose(0, 1), mixed.permute(1, 0, 5, 2, 3, 4)


def nonlinearity(
    forward: Forward, weights: Float[Tensor, "depth prompt d out"], radius: float, directions: int, seed: int
) -> Float[Tensor, "depth prompt"]:
    """The largest ‖w_l(b + δ) − w_l(b)‖ / ‖w_l(b)‖ over random δ with ‖δ‖ = radius · ‖b‖; 0 for a linear read-out."""
    generator, b = torch.Generator().manual_seed(seed), forward.b
    changes = []
    for _ in range(directions):
        delta = torch.randn(b.shape, generator=generator, dtype=b.dtype).to(b)
        delta *= radius * b.norm(dim=1, keepdim=True) / delta.norm(dim=1, keepdim=True)
        changes.append(apart(weights_by_jacobian(forward, b + delta), weights))
    return torch.stack(changes).amax(dim=0)


def apart(
    found: Float[Tensor, "depth prompt ..."], known: Float[Tensor, "depth prompt ..."]
) -> Float[Tensor, "depth prompt"]:
    """‖found − known‖ / ‖known‖ by depth and prompt; at depth 0, where w = 0, in units of the next depth's."""
    gap, size = (value.flatten(2).norm(dim=2) for value in (found - known, known))
    size = torch.cat([size[:1].maximum(size[1:2]), size[1:]])
    return torch.where(gap == 0, 0, gap / size).nan_to_num(nan=torch.inf)


def _read_one(forward: Forward, u: Tensor, b: Tensor, C: Tensor | None) -> Tensor:
    """The read-out [depth, out] of one prompt u [token, D]."""
    return forward.read(forward.placed(u[None], b[None], None if C is None else C[None]))[:, 0]


def _over_prompts(forward: Forward, function: Callable[..., Any], tangents: int, *given: Tensor) -> Any:
    """The function of one prompt for all of them, so many at a time that the activations of all tangents fit."""
    size = forward.u.shape[1] * forward.model.cfg.d_model
    with torch.no_grad():
        return vmap(function, chunk_size=max(1, NUMBERS // (tangents * size)))(forward.u, *given)
