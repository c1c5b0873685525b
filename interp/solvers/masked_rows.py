"""The block rows of a prompt under one EAGLE layer (MATH §4), with the d unit vectors as queries."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Coefficient = float | Float[Tensor, "..."]


def unit_queries(A: Float[Tensor, "batch *machine n d"], C: Float[Tensor, "batch *machine n out"]) -> dict[str, Any]:
    """A, C, and B = I, D = 0: D is linear in a query row, so w = −D predicts B_any @ w for every query. A is in
    units of "scale", which some solvers change (`rescaled`)."""
    d, out = A.shape[-1], C.shape[-1]
    B = torch.eye(d).to(A).expand(len(A), d, d)
    D = A.new_zeros(len(A), d, out)
    return {"w": D, "A": A, "C": C, "B": B, "D": D, "scale": torch.ones_like(A[..., :1, :1]), "step": 0}


def context_rows(
    state: dict[str, Any], eta: Coefficient, gamma: Coefficient, G: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A + η A AᵀA and C − γ A AᵀC, and the sums AᵀA (G, where it is known already) and AᵀC that they used."""
    A, C = state["A"], state["C"]
    seen = A.mT @ A if G is None else G
    moment = A.mT @ C
    return A + eta * (A @ seen), C - gamma * (A @ moment), seen, moment


def layer(state: dict[str, Any], eta: Coefficient, gamma: Coefficient, G: Tensor | None = None) -> dict[str, Any]:
    """All four blocks after a layer in which every row sees the same context."""
    A, C, G, moment = context_rows(state, eta, gamma, G)
    B, D = state["B"], state["D"]
    B, D = B + eta * (B @ G), D - gamma * (B @ moment)
    return {**state, "w": -D, "A": A, "C": C, "B": B, "D": D, "step": state["step"] + 1}
