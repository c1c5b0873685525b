"""Newton's method, damped."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between


@dataclass(frozen=True)
class Newton:
    """w ← w − η G⁺ (G w − moment), from w = 0.

    The error is (1 − η)^k on every eigenvalue: exact after one step with η = 1, and G⁺ gives the least norm where G is
    singular. Converges for 0 < η < 2.

    Source: Nocedal and Wright, Numerical Optimization, §3.3.
    """

    step_size: float = 1.0

    def __post_init__(self) -> None:
        check_between("Newton", "step_size", self.step_size, 2.0, "2")

    def start(self, problem: Quadratic) -> dict[str, Any]:
        return {"w": torch.zeros_like(problem.moment)}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return {"w": state["w"] - self.step_size * problem.solve(problem.gradient(state["w"]))}
