"""The heads of a model as tensors, and a model from such tensors: what the disguises rewrite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout, Visibility
from models.constructions.weights import model_from
from models.transformer import HookedTransformer

NEGLIGIBLE = 1e-13  # relative size below which a head is rounding
NAMES = ("W_Q", "W_K", "W_V", "W_O")

Weights = dict[str, Tensor]
Circuits = Float[Tensor, "layer head d_model d_model"]
Heads = Float[Tensor, "head D D"]
OtherHeads = Float[Tensor, "_ D D"]  # another number of them


def weights_of(model: HookedTransformer) -> Weights:
    """W_Q, W_K, W_V [layer, head, d_model, d_head] and W_O [layer, head, d_head, d_model], in float64 on the CPU.

    Raises:
        ValueError: the model has more weights than those.
    """
    cfg = model.cfg
    if len(model.state_dict()) != len(NAMES) * cfg.n_layers:
        others = sorted(name for name in model.state_dict() if name.rpartition(".")[2] not in NAMES)
        raise ValueError(f"a model in disguise has attention weights only, and this one has {others[0]!r}")
    return {name: getattr(model, name).detach().cpu().double() for name in NAMES}


def with_weights(
    model: HookedTransformer,
    weights: Mapping[str, Tensor],
    origin: Sequence[int] | None = None,
    layout: BlockLayout | None = None,
) -> HookedTransformer:
    """A model with these weights, in float64.

    Args:
        origin: for every new head the old one whose visibility it has; by default the heads are the old ones.
        layout: the new layout, by default the old one.
    """
    _, n_heads, d_model, d_head = weights["W_Q"].shape
    layout = model.layout if layout is None else layout
    if origin is not None and not isinstance(layout.visibility, Visibility):
        layout = replace(layout, visibility=[layout.visibility[head] for head in origin])
    return model_from(replace(model.cfg, n_heads=n_heads, d_model=d_model, d_head=d_head), layout, weights)


def circuits_of(model: HookedTransformer) -> tuple[Circuits, Circuits]:
    """Q = W_Q W_Kᵀ and V = W_V W_O of every head, of a model with a linear kernel."""
    if not model.cfg.kernel.is_linear:
        raise ValueError(f"heads can be recombined under a linear kernel only, and the model has {model.cfg.kernel}")
    W = weights_of(model)
    return W["W_Q"] @ W["W_K"].mT, W["W_V"] @ W["W_O"]


def from_circuits(model: HookedTransformer, Q: Circuits, V: Circuits, origin: Sequence[int]) -> HookedTransformer:
    """The model with these heads; d_head becomes d_model, which the scale 1/√d_head is corrected for."""
    eye = torch.eye(Q.shape[-1], dtype=torch.float64).expand_as(Q)
    scale = (model.cfg.d_model / model.cfg.d_head) ** 0.5 if model.cfg.kernel.scale == "sqrt_d_head" else 1.0
    return with_weights(model, {"W_Q": scale * Q, "W_K": eye, "W_V": V, "W_O": eye}, origin)


def visibility_groups(model: HookedTransformer) -> list[list[int]]:
    """The heads of each visibility."""
    groups: dict[Visibility, list[int]] = {}
    for head, rule in enumerate(model.layout.head_visibility(model.cfg.n_heads)):
        groups.setdefault(rule, []).append(head)
    return list(groups.values())


def fewest_heads(Q: Heads, V: Heads) -> tuple[OtherHeads, OtherHeads]:
    """Heads with the same Σ_h Q_h ⊗ V_h, as few as there are: its singular vectors."""
    heads, size = Q.shape[0], Q.shape[-1]
    (q_left, r_left), (q_right, r_right) = (torch.linalg.qr(M.reshape(heads, -1).T) for M in (Q, V))
    U, sigma, Wh = torch.linalg.svd(r_left @ r_right.T)
    keep = sigma > NEGLIGIBLE * sigma[0]
    left, right = q_left @ U[:, keep], q_right @ Wh[keep].T
    root = sigma[keep].sqrt()
    return (left * root).T.reshape(-1, size, size), (right * root).T.reshape(-1, size, size)


def trade(Q: Heads, V: Heads) -> tuple[OtherHeads, OtherHeads]:
    """Heads of T[a, c, b, j] = Σ_h Q_h[a, c] V_h[b, j]: for singular vectors Q ∋ u vᵀ and V ∋ s tᵀ, u sᵀ and v tᵀ."""
    size = Q.shape[-1]
    u, sigma_Q, vh = torch.linalg.svd(Q)
    s, sigma_V, th = torch.linalg.svd(V)
    left = torch.einsum("hap,hcr->hprac", u * sigma_Q[:, None], s * sigma_V[:, None])
    right = torch.einsum("hpb,hrj->hprbj", vh, th)
    return left.reshape(-1, size, size), right.reshape(-1, size, size)
