"""Online gradient descent: the LMS rule, one row a step."""

from dataclasses import dataclass
from typing import Any

from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between, row, rows


@dataclass(frozen=True)
class LeastMeanSquares:
    """w ← w + η a_k (c_k − a_kᵀ w), row k = 1 … n of A and C, from w = 0. At most n steps: one pass.

    For 0 < η < 2/max_k ‖a_k‖² no step moves away from a w that fits all rows; a step beyond it may, and is refused.

    Source: Widrow and Hoff 1960; the bound: Haykin, Adaptive Filter Theory (normalised LMS).
    """

    step_size: float

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("LeastMeanSquares", problem)
        bound = float(2 / A.square().sum(-1).max())
        check_between("LeastMeanSquares", "step_size", self.step_size, bound, "2/max ‖a‖²")
        return {"w": A.new_zeros(len(A), A.shape[-1], C.shape[-1]), "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        w, step = state["w"], state["step"]
        a, c = row("LeastMeanSquares", problem, step)
        return {"w": w + self.step_size * a.mT @ (c - a @ w), "step": step + 1}
