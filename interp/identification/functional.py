"""Gradient descent in the function space of a kernel: the one family that is no cubic map, read from the heads.

    f ← f − γ_l Σ_k (f(x_k) − y_k) k(·, x_k):   y_i ← y_i − γ_l Σ_k k(x_i/h, x_k/h) y_k, k over the context

The attention's similarity must see x alone, through a multiple of the identity, and its values must write −γ_l y to y.
Source: Cheng, Chen and Sra, arXiv 2312.06528.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identification.fit import ERROR_FLOOR, STRUCTURE, Fit
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from interp.unrolling.spectral import xy_slices

SIMILARITIES = ("exp", "gaussian", "laplace", "relu")  # elu1 sees the columns that a head leaves empty, too
Head = tuple[Float[Tensor, "3 D D"], Float[Tensor, "D D"]]
"""What a head's similarity sees, W_Q W_Qᵀ, W_Q W_Kᵀ, W_K W_Kᵀ (for exp the second alone), and what it writes."""


def functional_descent(model: Any, layout: BlockLayout) -> Fit | None:
    """The family fitted to a model with a kernel other than the linear one; None where it is not defined."""
    kernel: AttentionKernel = model.cfg.kernel
    plain = kernel.normalisation == "none" and kernel.scale != "n" and kernel.similarity in SIMILARITIES
    plain = plain and len(layout.columns) == 2
    if not plain or set(layout.head_visibility(model.cfg.n_heads)) != {Visibility()}:
        return None
    x, y = xy_slices(layout)
    layers = [_merged(_heads(block.attn, model.cfg, layout)) for block in model.blocks]
    idle = next((index for index, (heads, _) in enumerate(layers) if not heads), None)
    if idle is not None:
        exact = (0.0,) * len(layers)
        return Fit(
            "functional GD",
            {},
            0,
            lambda tokens: layout.predict(tokens),
            exact,
            0.0,
            0.0,
            f"layer {idle}: writes nothing",
        )
    seen = [heads[0][0] for heads, _ in layers]
    gamma = [-heads[0][1][y, y].diagonal().mean().item() for heads, _ in layers]
    shape = torch.zeros_like(seen[0])
    shape[:, x, x] = torch.eye(x.stop - x.start, dtype=torch.float64)
    scale = (sum((s * shape).sum() for s in seen) / (len(seen) * shape.sum())).item()
    distances = tuple(
        max(_sees(s, scale * shape), dropped + _writes(heads[0][1], g, y, layout, last=index == len(layers) - 1))
        for index, (s, (heads, dropped), g) in enumerate(zip(seen, layers, gamma, strict=True))
    )
    problem = _problem(layers, distances, gamma, scale, layout)
    settings = {"similarity": kernel.similarity, "bandwidth": max(scale, 1e-300) ** -0.5, "gamma": gamma}
    bandwidth = settings["bandwidth"]

    def predict(tokens: Tensor) -> Tensor:
        return descend(layout, kernel.similarity, bandwidth, gamma, tokens)

    excess = max(distances) / STRUCTURE
    return Fit("functional GD", settings, len(gamma) + 1, predict, distances, excess, ERROR_FLOOR, problem)


def descend(layout: BlockLayout, similarity: str, bandwidth: float, gamma: Sequence[float], tokens: Tensor) -> Tensor:
    """The predictions of functional gradient descent, from its formula."""
    u, (x, y) = layout.coordinates(tokens), xy_slices(layout)
    n, kernel = layout.n_context(u.shape[1]), AttentionKernel(similarity)
    rows = u[..., x] / bandwidth
    scores = kernel.scores(rows, rows[:, :n], n)
    K = kernel.pattern(scores, torch.ones(scores.shape[-2:], dtype=torch.bool, device=u.device))
    values = u[..., y]
    for step in gamma:
        values = values - step * K @ values[:, :n]
    return layout.sign * values[:, n:]


def _heads(attn: Any, cfg: Any, layout: BlockLayout) -> list[Head]:
    """Every head in block coordinates, a scale 1/√d_head inside."""
    W_Q, W_K, W_V, W_O = (getattr(attn, name).detach().double().cpu() for name in ("W_Q", "W_K", "W_V", "W_O"))
    scale = cfg.d_head**-0.25 if cfg.kernel.scale == "sqrt_d_head" else 1.0
    q, k = scale * layout.basis.T @ W_Q, scale * layout.basis.T @ W_K
    if cfg.kernel.is_feature_map:
        q, k = _balanced(q, k)
    V = layout.basis.T @ W_V @ W_O @ layout.dual
    if cfg.kernel.is_feature_map:  # relu(x R) is relu(x) only for R of one positive entry a column
        return [
            (torch.stack([a @ b.T, a.relu() @ b.relu().T, (-a).relu() @ (-b).relu().T + a @ b.T]), v)
            for a, b, v in zip(q, k, V, strict=True)
        ]
    if cfg.kernel.similarity == "exp":
        return [((a @ b.T).expand(3, -1, -1), v) for a, b, v in zip(q, k, V, strict=True)]
    return [(torch.stack([a @ a.T, a @ b.T, b @ b.T]), v) for a, b, v in zip(q, k, V, strict=True)]


def _balanced(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """A homogeneous feature map, as relu, sees W_Q times s and W_K divided by s, column by column, as the same."""
    ratio = (k.norm(dim=-2, keepdim=True) / q.norm(dim=-2, keepdim=True)).nan_to_num(1.0, posinf=1.0).clamp(min=1e-12)
    return q * ratio.sqrt(), k / ratio.sqrt()


def _merged(heads: Sequence[Head]) -> tuple[list[Head], float]:
    """Heads with one similarity as one, the largest first; small ones are left out, and their relative size is said."""
    merged: list[Head] = []
    for seen, written in heads:
        for index, (other, total) in enumerate(merged):
            if (seen[1] - other[1]).norm() <= STRUCTURE * other[1].norm():
                merged[index] = (other, total + written)
                break
        else:
            merged.append((seen, written))
    largest = max(total.norm().item() for _, total in merged)
    kept = [(seen, total) for seen, total in merged if total.norm() > STRUCTURE * largest]
    dropped = sum(total.norm().item() for _, total in merged) - sum(total.norm().item() for _, total in kept)
    return sorted(kept, key=lambda head: -head[1].norm().item()), dropped / largest if largest else 0.0


def _sees(seen: Tensor, expected: Tensor) -> float:
    size = seen.norm().item()
    return (seen - expected).norm().item() / size if size else float("inf")


def _writes(V: Tensor, gamma: float, y: slice, layout: BlockLayout, last: bool) -> float:
    """Relative distance of the values from −γ y → y; in the last layer only what is written to y counts."""
    expected = torch.zeros_like(V)
    expected[y, y] = -gamma * torch.eye(y.stop - y.start, dtype=V.dtype)
    live = y if last else slice(0, layout.d_model)
    size = V[:, live].norm().item()
    return (V - expected)[:, live].norm().item() / size if size else float("inf")


def _problem(
    layers: Sequence[tuple[Sequence[Head], float]],
    distances: Sequence[float],
    gamma: Sequence[float],
    scale: float,
    layout: BlockLayout,
) -> str | None:
    if layout.sign > 0:
        return "the read-out does not negate, so these steps ascend"
    for index, ((heads, _), distance, step) in enumerate(zip(layers, distances, gamma, strict=True)):
        if len(heads) > 1:
            return f"layer {index}: {len(heads)} heads of different similarity"
        if distance > STRUCTURE:
            return f"layer {index}: at distance {distance:.2g} (tolerance {STRUCTURE:g})"
        if step <= 0:
            return f"layer {index}: γ = {step:.3g} is not positive"
    return None if scale > 0 else "the similarity does not grow with xᵀx'"
