"""Newton steps with the leading eigenvectors of the Hessian."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic, rounding
from interp.solvers.settings import check_whole


@dataclass(frozen=True)
class LowRankNewton:
    """w ← w − U (Σ + λI)⁻¹ Uᵀ (G w − moment), U Σ Uᵀ the leading part of G of the given rank, from w = 0.

    The error on an eigenvalue σ of Σ is (λ/(σ + λ))^k; directions outside U stay at 0, so the limit is the solution of
    least norm on the span of U (principal component regression). Converges for every λ ≥ 0; λ = 0 needs one step.

    Args:
        rank: number of eigenvectors.
        damping: λ.

    Source: truncated Newton in the Levenberg (1944) form; the limit: Jolliffe 1982.
    """

    rank: int
    damping: float = 0.0

    def start(self, problem: Quadratic) -> dict[str, Any]:
        width = problem.G.shape[-1]
        check_whole("LowRankNewton", "rank", self.rank, None)
        if not 1 <= self.rank <= width:
            raise ValueError(f"LowRankNewton: rank={self.rank} must lie between 1 and the {width} columns")
        if not 0 <= self.damping < float("inf"):
            raise ValueError(f"LowRankNewton: damping={self.damping} must be finite and at least 0")
        values, vectors = torch.linalg.eigh(problem.G)
        values, vectors = values[:, -self.rank :], vectors[:, :, -self.rank :]
        floor = rounding(problem.G) * values[:, -1:]
        inverse = torch.where(values > floor, 1 / torch.where(values > floor, values + self.damping, 1), 0)
        return {"w": torch.zeros_like(problem.moment), "inverse": (vectors * inverse[:, None]) @ vectors.mT}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "w": state["w"] - state["inverse"] @ problem.gradient(state["w"])}
