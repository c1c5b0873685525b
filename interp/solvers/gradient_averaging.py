"""Distributed gradient descent: every machine sends the gradient of its rows, and the mean is taken."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between, machine_rows


@dataclass(frozen=True)
class GradientAveraging:
    """w ← w − η mean_μ A_μᵀ(A_μ w − C_μ), from w = 0.

    The mean of the gradients is the whole gradient over M machines: the error on an eigenvalue g of AᵀA is
    (1 − ηg/M)^k.
    Converges for 0 < η < 2M/λ_max(AᵀA). Without a step size each prompt gets 2M/(λ_min + λ_max).

    Source: synchronous data-parallel gradient descent (Dekel, Gilad-Bachrach, Shamir and Xiao 2012) with whole batches.
    """

    machines: int
    step_size: float | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = machine_rows("GradientAveraging", problem, self.machines)
        smallest, largest = problem.spectrum
        if self.step_size is not None:
            bound = float(2 * self.machines / largest.max())
            check_between("GradientAveraging", "step_size", self.step_size, bound, "2M/λ_max")
        best = (2 * self.machines / (smallest + largest))[:, None, None]
        return {"w": torch.zeros_like(problem.moment), "A": A, "C": C, "best": best}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        A, C, w = state["A"], state["C"], state["w"]
        gradients = A.mT @ (A @ w[:, None] - C)
        eta = state["best"] if self.step_size is None else self.step_size
        return {**state, "w": w - eta * gradients.mean(1)}
