"""Recursive least squares, one row a step."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import row, rows


@dataclass(frozen=True)
class RecursiveLeastSquares:
    """k = P a/(f + aᵀP a),  w ← w + k (c − aᵀw),  P ← (P − k aᵀP)/f, from w = 0, P = I/δ. At most n steps: one pass.

    After k rows w is exactly ridge regression on them with weights f^(k−i) and penalty δ f^k. Always converges for
    δ > 0 and 0 < f ≤ 1; for f far below 1, P grows in directions that the rows do not excite.

    Args:
        penalty: δ > 0.
        forgetting: f.

    Source: Plackett 1950; Haykin, Adaptive Filter Theory.
    """

    penalty: float
    forgetting: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise ValueError(f"RecursiveLeastSquares: penalty={self.penalty} must be finite and greater than 0")
        if not 0 < self.forgetting <= 1:
            raise ValueError(
                f"RecursiveLeastSquares: forgetting={self.forgetting} must be greater than 0 and at most 1"
            )

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("RecursiveLeastSquares", problem)
        d = A.shape[-1]
        P = (torch.eye(d).to(A) / self.penalty).expand(len(A), d, d)
        return {"w": A.new_zeros(len(A), d, C.shape[-1]), "P": P, "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        w, P, step = state["w"], state["P"], state["step"]
        a, c = row("RecursiveLeastSquares", problem, step)
        image = P @ a.mT
        gain = image / (self.forgetting + a @ image)
        return {"w": w + gain @ (c - a @ w), "P": (P - gain @ image.mT) / self.forgetting, "step": step + 1}
