"""Preconditioned gradient descent, with one matrix or one a step."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.preconditioners import Preconditioner, apply, factor_of, inverse_of, transform
from interp.solvers.problems import Quadratic
from interp.solvers.settings import at, check_between


@dataclass(frozen=True, eq=False)
class PreconditionedDescent:
    """w ← w − η P⁻¹ (G w − moment), from w = 0.

    Converges for 0 < η < 2/λ_max(P⁻¹G). A tuple of preconditioners is a schedule, one a step: the error is then
    Π (I − η P_l⁻¹ G) times the solution, which need not contract at every step. Each must be positive definite.

    Args:
        preconditioner: P⁻¹ (Ahn et al. write P for what is P⁻¹ here), as a matrix or a function of the problem.
        step_size: η.

    Source: Ahn, Cheng, Daneshmand and Sra 2023 (the weights of linear attention hold the preconditioner).
    """

    preconditioner: Preconditioner | tuple[Preconditioner, ...]
    step_size: float = 1.0

    def start(self, problem: Quadratic) -> dict[str, Any]:
        given, name = self.preconditioner, "PreconditionedDescent"
        every = given if isinstance(given, tuple) else (given,)
        inverses = tuple(inverse_of(name, each, problem) for each in every)
        factors = [factor_of(name, inverse) for inverse in inverses]
        scheduled, bound = isinstance(given, tuple), float("inf")
        if not scheduled:
            bound = float(2 / torch.linalg.eigvalsh(transform(factors[0], problem.G)).max())
        check_between(name, "step_size", self.step_size, bound, "2/λ_max(P⁻¹G)")
        inverse = inverses if scheduled else inverses[0]
        return {"w": torch.zeros_like(problem.moment), "inverse": inverse, "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        inverse = at("PreconditionedDescent", "preconditioner", state["inverse"], state["step"])
        moved = state["w"] - self.step_size * apply(inverse, problem.gradient(state["w"]))
        return {**state, "w": moved, "step": state["step"] + 1}
