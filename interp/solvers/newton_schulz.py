"""Newton–Schulz iteration for the inverse of G, applied to the moment."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic


@dataclass(frozen=True)
class NewtonSchulz:
    """X ← X (2I − G X), from X = I/λ_max(G); w = X moment.

    On an eigenvalue g the residual is 1 − g x_k = (1 − g/λ_max)^(2^k): second order, from any spectrum. Where
    G is singular, rounding in its null space doubles every step: stop some steps after log₂ κ(G).

    Source: Schulz 1933; Ben-Israel and Cohen 1966.
    """

    def start(self, problem: Quadratic) -> dict[str, Any]:
        X = torch.eye(problem.G.shape[-1]).to(problem.G) / problem.spectrum[1][:, None, None]
        return {"w": X @ problem.moment, "X": X}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        X = 2 * state["X"] - state["X"] @ problem.G @ state["X"]
        return {"w": X @ problem.moment, "X": X}
