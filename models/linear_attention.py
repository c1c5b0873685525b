"""Attention with a feature map in O(n): the sums Σ_k φ(k) vᵀ instead of the pattern.

Row i's output is φ(q_i) S_i with S_i = Σ_{k visible from i} φ(k_k) v_kᵀ. Under every rule of `interp.layout.RULES` S_i
is a sum over a few blocks of rows, or a running sum. All functions take and return [*batch, token, width], and the
first `n_context` tokens are the context.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from interp.kernels import divide_by_total
from interp.layout import Visibility, machine_of

CHUNK = 64
"""Rows a chunk of a running sum: inside a chunk the pattern is formed, between chunks sums are carried."""

Features = Float[Tensor, "*batch token feature"]
Values = Float[Tensor, "*batch token width"]


def attend(q: Features, k: Features, v: Values, visibility: Visibility, n_context: int, machines: int) -> Values:
    """Σ_k (q_i·k_k) v_k over the keys that row i sees; q and k are features already."""
    context, query = visibility.context, visibility.query
    if context == query and machine_of(context) is None:
        return _attend_rows(context, q, k, v, 0, n_context, machines)
    first = _attend_rows(context, q[..., :n_context, :], k, v, 0, n_context, machines)
    last = _attend_rows(query, q[..., n_context:, :], k, v, n_context, n_context, machines)
    return torch.cat([first, last], dim=-2)


def attend_normalised(
    q: Features, k: Features, v: Values, visibility: Visibility, n_context: int, machines: int
) -> Values:
    """The same, each row divided by its sum Σ_k q_i·k_k; a row whose sum is 0 stays 0."""
    ones = v.new_ones(*v.shape[:-1], 1)
    sums = attend(q, k, torch.cat([v, ones], dim=-1), visibility, n_context, machines)
    return divide_by_total(sums[..., :-1], sums[..., -1:])


def _attend_rows(
    rule: str, q: Float[Tensor, "*batch row feature"], k: Features, v: Values, start: int, n_context: int, machines: int
) -> Float[Tensor, "*batch row width"]:
    """The outputs of the rows from `start` on whose queries are given, and which all follow one rule."""
    own = slice(start, start + q.shape[-2])
    if (machine := machine_of(rule)) is not None:
        return _one_machine(machine, q, k, v, start, n_context // machines)
    match rule:
        case "none":
            return v.new_zeros(*q.shape[:-1], v.shape[-1])
        case "context":
            return q @ _sum(k, v, n_context)
        case "machine":
            return _per_machine(q, k[..., own, :], v[..., own, :], machines)
        case "context_and_self":
            return q @ _sum(k, v, n_context) + _self(q, k[..., own, :], v[..., own, :], n_context - start)
        case "causal":
            since_start = running(q, k[..., own, :], v[..., own, :])
            return since_start + q @ _sum(k, v, start) if start else since_start
        case "all":
            return q @ (k.mT @ v)
    raise ValueError(f"the visibility rule {rule!r} has no O(n) form")


def _sum(k: Features, v: Values, stop: int) -> Float[Tensor, "*batch feature width"]:
    """Σ k_i v_iᵀ over the rows before `stop`."""
    return k[..., :stop, :].mT @ v[..., :stop, :]


def _per_machine(q: Features, k: Features, v: Values, machines: int) -> Values:
    q, k, v = (u.unflatten(-2, (machines, -1)) for u in (q, k, v))
    return (q @ (k.mT @ v)).flatten(-3, -2)


def _one_machine(
    machine: int, q: Float[Tensor, "*batch row feature"], k: Features, v: Values, start: int, size: int
) -> Float[Tensor, "*batch row width"]:
    """The rows of one machine, seen by the queries (start > 0) or by themselves."""
    served = slice(machine * size, (machine + 1) * size)
    seen = k[..., served, :].mT @ v[..., served, :]
    if start:
        return q @ seen
    out = v.new_zeros(*q.shape[:-1], v.shape[-1])
    out[..., served, :] = q[..., served, :] @ seen
    return out


def _self(q: Features, k: Features, v: Values, n_context: int) -> Values:
    """A row's own term, for query rows only: a context row is among the context already."""
    own = (q * k).sum(-1, keepdim=True) * v
    return torch.cat([torch.zeros_like(own[..., :n_context, :]), own[..., n_context:, :]], dim=-2)


def running(q: Features, k: Features, v: Values) -> Values:
    """Σ_{k ≤ i} (q_i·k_k) v_k, in chunks: O(n · CHUNK) operations, O(n) memory."""
    n_tokens = q.shape[-2]
    padding = -n_tokens % CHUNK
    q, k, v = (functional.pad(u, (0, 0, 0, padding)).unflatten(-2, (-1, CHUNK)) for u in (q, k, v))
    sums = k.mT @ v
    before = functional.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(-3)
    out = q @ before + (q @ k.mT).tril() @ v
    return out.flatten(-3, -2)[..., :n_tokens, :]
