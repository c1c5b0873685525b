"""Gradient descent on a function in the kernel's space."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import KernelSystem, LinearSystem, Quadratic
from interp.solvers.settings import check_between, require


@dataclass(frozen=True)
class FunctionalGradientDescent:
    """f ← f − η Σ_i (f(x_i) − y_i) k(·, x_i), from f = 0; f = Σ_j α_j k(·, x_j), so α ← α + η (y − K α).

    It descends the squared error without the ridge: `lam` of the problem takes no part, stopping early regularises.
    On an eigenvalue g of K the error of f is (1 − ηg)^k. f converges at the context for 0 < η < 2/λ_max(K); where K is
    singular and y outside its range, α grows without end in directions that f does not see. (Richardson iteration with
    the ridge is `GradientDescent` on the same problem.) Without a step size η = 1/λ_max(K).

    Source: Cheng, Chen and Sra 2024 (attention computes the kernel; there k need not be symmetric, here K is).
    """

    step_size: float | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        system = require("FunctionalGradientDescent", KernelSystem, problem)
        plain = LinearSystem(system.K, system.y)
        largest = plain.spectrum[1]
        if self.step_size is not None:
            bound = float(2 / largest.max())
            check_between("FunctionalGradientDescent", "step_size", self.step_size, bound, "2/λ_max(K)")
        eta = 1 / largest if self.step_size is None else torch.full_like(largest, self.step_size)
        return {"w": torch.zeros_like(system.y), "plain": plain, "eta": eta[:, None, None]}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "w": state["w"] - state["eta"] * state["plain"].gradient(state["w"])}
