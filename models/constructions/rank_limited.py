"""EAGLE with heads that read x through a projection of rank r < d."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from models.constructions.construction import Construction, PromptShape, check_negative, check_positive
from models.constructions.weights import from_heads, place

Frame = Float[Tensor, "x _"]
ORTHONORMAL = 1e-10


def rank_limited_eagle(
    shape: PromptShape, eta: Sequence[float], gamma: Sequence[float], frames: Sequence[Sequence[Frame]]
) -> Construction:
    """One head for every frame S of a layer, Q = diag(S Sᵀ, 0), V = diag(η I, −γ I), so with Π = Σ S Sᵀ over the heads

        A ← A + η_l A Π_l AᵀA       C ← C − γ_l A Π_l AᵀC       (B and D likewise)

    A single head of rank r < d is a sketch of A; heads whose projections add up to the identity are EAGLE.

    Args:
        frames: by layer, the frames S [d, r] of its heads, each with orthonormal columns.

    Source: arXiv 2509.19702, the rank-limited setting.

    Raises:
        ValueError: a frame is not [d, r] with r ≤ d, or its columns are not orthonormal.
    """
    check_negative("rank_limited_eagle", eta=list(eta))
    check_positive("rank_limited_eagle", gamma=list(gamma))
    for S in (S for heads in frames for S in heads):
        _check_frame(S, shape.d)
    layout = shape.layout()
    layers = [
        [(place(layout, {("x", "x"): S @ S.mT}), place(layout, {("x", "x"): e, ("y", "y"): -c})) for S in heads]
        for e, c, heads in zip(eta, gamma, frames, strict=True)
    ]
    family = "scheduled EAGLE" if all(_is_complete(heads) for heads in frames) else "rank-limited EAGLE"
    steps = {"eta": list(eta), "gamma": list(gamma)}
    settings = {**steps, "frames": [[S.tolist() for S in heads] for heads in frames], **shape.settings()}
    return Construction(family, from_heads(layers, layout, shape.scale), settings)


def _check_frame(S: Tensor, d: int) -> None:
    if S.ndim != 2 or S.shape[0] != d or not 1 <= S.shape[1] <= d:
        raise ValueError(f"rank_limited_eagle: a frame must be [{d}, r] with r from 1 to {d}, got {list(S.shape)}")
    if (S.mT @ S - torch.eye(S.shape[1]).to(S)).abs().max() > ORTHONORMAL:
        raise ValueError("rank_limited_eagle: the columns of a frame are not orthonormal; take Q of torch.linalg.qr")


def _is_complete(frames: Sequence[Tensor]) -> bool:
    """Do the projections add up to the identity."""
    total = sum((S @ S.mT for S in frames[1:]), frames[0] @ frames[0].mT)
    return bool((total - torch.eye(total.shape[0]).to(total)).abs().max() < ORTHONORMAL)
