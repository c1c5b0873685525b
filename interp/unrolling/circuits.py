"""From a model's heads to the matrices of its layers, in block coordinates (MATH §2).

Row i of the prompt, in block coordinates u, moves by

    Δu_i = Σ_h u_i Q_h S_i V_h,    S_i = Σ_{k visible from i} u_kᵀ u_k

so with T[a,b,c,j] = Σ_h Q_h[a,b] V_h[c,j] only the part of T that is symmetric in (b, c) acts. Heads that act on the
same rows under the same visibility form one `Group`; its symmetrised tensor is the complete invariant, and the heads
kept here are the canonical ones of the sum (singular vectors of Σ_h vec(Q_h) vec(V_h)ᵀ), however it was split.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import ROLES, BlockLayout

NEGLIGIBLE = 1e-13  # relative size below which a canonical head is rounding, not weight
UNREAD = 1e-12  # relative size below which a block is not read: exactly zero weights, up to the rounding of a gauge


@dataclass(frozen=True)
class Group:
    """The heads that act on rows of `roles`, which see the rows named by `rule`.

    Q and V are [head, D, D] in block coordinates (scale included, except a symbolic 1/n). In a circuit they are the
    canonical heads of the sum; `own` holds those that the model has, and `members` their numbers in it.
    """

    roles: tuple[str, ...]
    rule: str
    Q: Float[Tensor, "head D D"]
    V: Float[Tensor, "head D D"]
    own: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    members: tuple[int, ...] = ()

    def tensor(self) -> Float[Tensor, "D D D D"]:
        """T[a, b, c, j], symmetrised in (b, c). Memory D⁴: for tests and small models."""
        full = torch.einsum("hab,hcj->abcj", self.Q, self.V)
        return (full + full.transpose(1, 2)) / 2


@dataclass(frozen=True)
class Circuit:
    """One layer: its groups, and the column blocks in which its update can reach the output, by role of the row."""

    groups: tuple[Group, ...]
    live: dict[str, tuple[str, ...]]


def extract_circuits(model: Any, layout: BlockLayout) -> list[Circuit]:
    """The layers of an attention-only model with linear kernels, in float64.

    Raises ValueError for a model that is no composition of cubic maps, naming the reason and the alternative.
    """
    check_unrollable(model)
    cfg = model.cfg
    if layout.d_model != cfg.d_model:
        raise ValueError(
            f"the layout covers {layout.d_model} columns {layout.widths}, the model's residual stream has {cfg.d_model}"
        )
    grouped = [_groups(block.attn, cfg, layout) for block in model.blocks]
    return [Circuit(groups, live) for groups, live in zip(grouped, _liveness(grouped, layout), strict=True)]


def check_unrollable(model: Any) -> None:
    """Refuse what a cubic map cannot express, in one sentence; NaN and inf weights by the name of their tensor."""
    kernel = getattr(model.cfg, "kernel", None)
    if kernel is None or not kernel.is_linear:
        raise _not_exact(f"its attention kernel is {kernel or 'softmax'}")
    check_attention_only(model)


def check_attention_only(model: Any) -> None:
    """Refuse layers that are more than attention on tokens: norms, MLPs, positions, read-ins, biases; NaN and inf."""
    cfg = model.cfg
    reasons = [
        (
            getattr(cfg, "normalization_type", None) is not None,
            f"it has {getattr(cfg, 'normalization_type', '')} layers",
        ),
        (not getattr(cfg, "attn_only", False), "it has MLPs"),
        (getattr(cfg, "positional_embedding_type", None) is not None, "it adds position embeddings"),
        (getattr(cfg, "d_in", None) is not None, "it has a learned read-in"),
        (getattr(cfg, "d_out", None) is not None, "it has a learned read-out"),
    ]
    for fails, reason in reasons:
        if fails:
            raise _not_exact(reason)
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise ValueError(f"unroll: the weight {name} holds NaN or inf; reload or retrain the model")
    if biases := attention_biases(model):
        raise ValueError(
            f"unroll: the bias {biases[0]} is not zero, so layers are not cubic; unroll a model without biases"
        )


def attention_biases(model: Any) -> list[str]:
    """The biases of attention that are not zero, by name; TransformerLens's models always have them."""
    places = [
        (f"blocks.{layer}.attn.{name}", getattr(block.attn, name, None))
        for layer, block in enumerate(model.blocks)
        for name in ("b_Q", "b_K", "b_V", "b_O")
    ]
    return [name for name, bias in places if bias is not None and bool(bias.abs().max() > 0)]


def _not_exact(reason: str) -> ValueError:
    return ValueError(
        f"unroll: the model cannot be unrolled exactly because {reason}; exact unrolling takes attention-only models "
        "with linear kernels, and activations of any model can be read with interp.hooks.capture"
    )


def _groups(attn: Any, cfg: Any, layout: BlockLayout) -> tuple[Group, ...]:
    """The layer's heads in block coordinates, collected by rule and roles, each group in canonical form."""
    W_Q, W_K, W_V, W_O = (getattr(attn, name).detach().double().cpu() for name in ("W_Q", "W_K", "W_V", "W_O"))
    scale = cfg.d_head**-0.5 if cfg.kernel.scale == "sqrt_d_head" else 1.0
    basis, dual = layout.basis.double().cpu(), layout.dual.cpu()
    Q = scale * basis.T @ W_Q @ W_K.mT @ basis
    V = basis.T @ W_V @ W_O @ dual
    return by_rule_and_roles(Q, V, layout)


def by_rule_and_roles(
    Q: Float[Tensor, "head D D"], V: Float[Tensor, "head D D"], layout: BlockLayout
) -> tuple[Group, ...]:
    """Heads of one visibility rule and the same roles together, each group in canonical form."""
    rules = layout.head_visibility(len(Q))
    heads: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for role in ROLES:
        for rule in dict.fromkeys(visibility.of(role) for visibility in rules):
            members = tuple(h for h, visibility in enumerate(rules) if visibility.of(role) == rule)
            if rule != "none":
                heads.setdefault((rule, members), []).append(role)
    return tuple(
        canonical(Group(tuple(roles), rule, Q[list(members)], V[list(members)], members=members))
        for (rule, members), roles in heads.items()
    )


def canonical(group: Group) -> Group:
    """The same Σ_h Q_h ⊗ V_h with the fewest heads: unique up to degenerate singular values.

    A head's Q is scaled to weighted mean singular value 1 (c · projection becomes a projection) and positive trace.
    """
    heads, size = group.Q.shape[0], group.Q.shape[-1]
    left, right = (matrix.reshape(heads, -1).T for matrix in (group.Q, group.V))
    (q_left, r_left), (q_right, r_right) = torch.linalg.qr(left), torch.linalg.qr(right)
    U, sigma, Wh = torch.linalg.svd(r_left @ r_right.T)
    keep = sigma > NEGLIGIBLE * sigma[0].clamp(min=torch.finfo(sigma.dtype).tiny)
    Q = (q_left @ U[:, keep]).T.reshape(-1, size, size)
    V = ((q_right @ Wh.T[:, keep]) * sigma[keep]).T.reshape(-1, size, size)
    Q, V = normalised(Q, V)
    return replace(group, Q=Q, V=V, own=(group.Q, group.V))


def normalised(Q: Float[Tensor, "head D D"], V: Float[Tensor, "head D D"]) -> tuple[Tensor, Tensor]:
    """The same heads, each Q at weighted mean singular value 1 and with positive trace; a Q that is 0 stays."""
    unit = _weighted_mean_singular_value(Q) * _orientation(Q)
    unit = torch.where(unit.abs() > 0, unit, 1.0)[:, None, None]
    return Q / unit, V * unit


def _weighted_mean_singular_value(matrix: Float[Tensor, "head D D"]) -> Float[Tensor, "head"]:
    sigma = torch.linalg.svdvals(matrix)
    return sigma.square().sum(-1) / sigma.sum(-1).clamp(min=torch.finfo(sigma.dtype).tiny)


def _orientation(matrix: Float[Tensor, "head D D"]) -> Float[Tensor, "head"]:
    """The sign of the trace, or of the largest entry where the trace is small."""
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    flat = matrix.flatten(1)
    largest = flat.gather(1, flat.abs().argmax(1, keepdim=True))[:, 0]
    return torch.where(trace.abs() > 1e-6 * flat.norm(dim=1), trace, largest).sign()


def _liveness(layers: list[tuple[Group, ...]], layout: BlockLayout) -> list[dict[str, tuple[str, ...]]]:
    """By layer and role: the blocks whose update reaches the output. Blocks of zero weight are not read."""
    live = {"context": set[str](), "query": {layout.readout}}
    result = []
    for groups in reversed(layers):
        result.append({role: tuple(name for name in layout.columns if name in live[role]) for role in ROLES})
        before = {role: set(blocks) for role, blocks in live.items()}
        for group in groups:
            for role in group.roles:
                reads = _blocks_read(group, live[role], layout)
                before[role] |= reads["row"]
                before["context"] |= reads["seen"]
                if group.rule == "all" or (group.rule in ("causal", "context_and_self") and role == "query"):
                    before["query"] |= reads["seen"]
        live = before
    return result[::-1]


def _blocks_read(group: Group, written: set[str], layout: BlockLayout) -> dict[str, set[str]]:
    """The blocks that an update into `written` reads: of the row itself, and of the rows it sees."""
    reads: dict[str, set[str]] = {"row": set(), "seen": set()}
    columns = [i for name in sorted(written) for i in range(*layout.slices[name].indices(layout.d_model))]
    sizes = [Q.norm() * V.norm() for Q, V in zip(group.Q, group.V, strict=True)]
    cut = UNREAD * max(sizes, default=torch.zeros(()))
    for Q, V in zip(group.Q, group.V, strict=True):
        written_size = V[:, columns].norm()
        for name, block in layout.slices.items():
            if Q[block].norm() * written_size > cut:
                reads["row"].add(name)
            if Q[:, block].norm() * written_size > cut or Q.norm() * V[block][:, columns].norm() > cut:
                reads["seen"].add(name)
    return reads
