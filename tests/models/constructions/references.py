"""Every family as plain torch on A, B, C, written without looking at weights: (settings, A, B, C) → prediction."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Settings = dict[str, Any]
Reference = Callable[[Settings, Tensor, Tensor, Tensor, int], Tensor]


def moments(settings: Settings, A: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
    n = A.shape[1] if settings["scale"] == "n" else 1
    return A.mT @ A / n, A.mT @ C / n


def per_layer(value: float | list[float], layers: int) -> list[float]:
    return value if isinstance(value, list) else [value] * layers


def descent(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """The iterates of the weights."""
    G, moment = moments(settings, A, C)
    w = torch.zeros_like(moment)
    for gamma in per_layer(settings["gamma"], layers):
        w = w - gamma * (G @ w - moment)
    return B @ w


def chebyshev(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """Semi-iteration by its three-term recurrence, which never sees a node."""
    G, moment = moments(settings, A, C)
    low, high = settings["interval"]
    middle, half = (low + high) / 2, (high - low) / 2
    w, previous, rho = moment / middle, torch.zeros_like(moment), half / middle
    for _ in range(layers - 1):
        after = 1 / (2 * middle / half - rho)
        step = 2 * after / half * (moment - G @ w) + after * rho * (w - previous)
        w, previous, rho = w + step, w, after
    return B @ w


def preconditioned(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    G, moment = moments(settings, A, C)
    w = torch.zeros_like(moment)
    for P in settings["preconditioners"]:
        w = w - torch.tensor(P, dtype=torch.float64) @ (G @ w - moment)
    return B @ w


def spectral_eagle(G: Tensor, moment: Tensor, B: Tensor, eta: list[float], gamma: list[float]) -> Tensor:
    """B s_L(G) AᵀC by the closed form on the eigenvalues."""
    g, frame = torch.linalg.eigh(G)
    p, r, s = torch.ones_like(g), torch.ones_like(g), torch.zeros_like(g)
    for e, c in zip(eta, gamma, strict=True):
        s, r, p = s + c * p**2 * r, r * (1 - c * g * p**2), p * (1 + e * g * p**2)
    return B @ frame @ (s[..., None] * (frame.mT @ moment))


def scheduled_eagle(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    eta, gamma = (per_layer(settings[name], layers) for name in ("eta", "gamma"))
    return spectral_eagle(*moments(settings, A, C), B, eta, gamma)


def eagle(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """In units of the norms, which are those of the layers' own worst singular value, from the first."""
    grid = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    ratio = (grid * (1 + settings["eta"] * grid**2)).abs().max().item()
    first = settings["norms"][0]
    assert all(math.isclose(norm, first * ratio**layer, rel_tol=1e-8) for layer, norm in enumerate(settings["norms"]))
    eta, gamma = ([settings[name] / norm**2 for norm in settings["norms"]] for name in ("eta", "gamma"))
    return spectral_eagle(*moments(settings, A, C), B, eta, gamma)


def heavy_ball(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    G, moment = moments(settings, A, C)
    w = previous = torch.zeros_like(moment)
    for _ in range(layers):
        step = settings["beta"] * (w - previous) - settings["gamma"] * (G @ w - moment)
        w, previous = w + step, w
    return B @ w


def ridge(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    G, moment = moments(settings, A, C)
    w = torch.zeros_like(moment)
    for _ in range(layers):
        w = w - settings["gamma"] * (G @ w - moment + settings["penalty"] * w)
    return B @ w


def averaging(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    return C.mean(1, keepdim=True).expand(-1, B.shape[1], -1)


def distributed(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    n = A.shape[1] if settings["scale"] == "n" else 1
    machines = list(zip(A.chunk(settings["machines"], 1), C.chunk(settings["machines"], 1), strict=True))
    D = torch.zeros(B.shape[0], B.shape[1], C.shape[2], dtype=B.dtype)
    names = ("eta", "gamma", "query_eta", "query_gamma")
    for eta, gamma, query_eta, query_gamma in zip(*(settings[name] for name in names), strict=True):
        D = D - query_gamma * sum(B @ (a.mT @ c) for a, c in machines) / n
        B = B + query_eta * sum(B @ (a.mT @ a) for a, _ in machines) / n
        machines = [(a + eta * a @ (a.mT @ a) / n, c - gamma * a @ (a.mT @ c) / n) for a, c in machines]
    return -D


def one_head_a_machine(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """Queries step by the machines' own coefficients."""
    steps = {"query_eta": settings["eta"], "query_gamma": settings["gamma"]}
    return distributed({**settings, **steps}, A, B, C, layers)


def rank_limited(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """Every row steps on the projection of the context's second moments."""
    n = A.shape[1] if settings["scale"] == "n" else 1
    D = torch.zeros(B.shape[0], B.shape[1], C.shape[2], dtype=B.dtype)
    for eta, gamma, frames in zip(settings["eta"], settings["gamma"], settings["frames"], strict=True):
        P = sum(torch.tensor(S, dtype=torch.float64) @ torch.tensor(S, dtype=torch.float64).T for S in frames) / n
        G, moment = A.mT @ A, A.mT @ C
        A, B, C, D = A + eta * A @ P @ G, B + eta * B @ P @ G, C - gamma * A @ P @ moment, D - gamma * B @ P @ moment
    return -D


def functional(settings: Settings, A: Tensor, B: Tensor, C: Tensor, layers: int) -> Tensor:
    """The expansion f = Σ_k α_k k(·, x_k)."""
    a, b = A / settings["bandwidth"], B / settings["bandwidth"]
    kernel = {
        "exp": lambda u, v: (u * v).sum(-1).exp(),
        "gaussian": lambda u, v: (-(u - v).square().sum(-1) / 2).exp(),
        "laplace": lambda u, v: (-(u - v).norm(dim=-1)).exp(),
        "relu": lambda u, v: (u.clamp(min=0) * v.clamp(min=0)).sum(-1),
    }[settings["similarity"]]
    K, query = kernel(a[:, :, None], a[:, None]), kernel(b[:, :, None], a[:, None])
    alpha = torch.zeros_like(C)
    for gamma in settings["gamma"]:
        alpha = alpha - gamma * (K @ alpha - C)
    return query @ alpha


REFERENCES: dict[str, Reference] = {
    "gradient descent": descent,
    "Chebyshev nodes": chebyshev,
    "scheduled GD": descent,
    "preconditioned GD": preconditioned,
    "GD++": scheduled_eagle,
    "EAGLE": eagle,
    "scheduled EAGLE": scheduled_eagle,
    "heavy ball": heavy_ball,
    "ridge GD": ridge,
    "averaging": averaging,
    "distributed EAGLE": distributed,
    "functional GD": functional,
    "gradient descent, alternating tokens": descent,
    "distributed EAGLE, one head a machine": one_head_a_machine,
    "scheduled EAGLE, complementary heads": scheduled_eagle,
    "rank-limited EAGLE, one head": rank_limited,
}
