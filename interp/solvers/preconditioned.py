"""Any solver in the metric of a preconditioner."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.iterate import Solver
from interp.solvers.preconditioners import Preconditioner, inverse_of
from interp.solvers.problems import LinearSystem, Quadratic


@dataclass(frozen=True, eq=False)
class Preconditioned:
    """The solver on S G S v = S moment with S = P^(−1/2); w = S v.

    Every gradient of the solver becomes P⁻¹ (G w − moment) and every bound speaks of the spectrum of P⁻¹G:
    `Preconditioned(ConjugateGradient(), jacobi)` is PCG, `Preconditioned(GradientDescent(1.0), row_sums)` is
    preconditioned Richardson, α ← α + P⁻¹(y − (K + λI) α) with P = D + λI, which converges for all data (MATH §6), and
    `Preconditioned(Nesterov(), row_sums)` preconditioned Nesterov. Where G is singular the limit has least P-norm.

    Source: Saad, Iterative Methods for Sparse Linear Systems, §9.2 (split preconditioning).
    """

    solver: Solver
    preconditioner: Preconditioner

    def start(self, problem: Quadratic) -> dict[str, Any]:
        values, vectors = torch.linalg.eigh(inverse_of("Preconditioned", self.preconditioner, problem))
        S = (vectors * values.sqrt()[:, None]) @ vectors.mT
        system = LinearSystem(S @ problem.G @ S, S @ problem.moment)
        inner = self.solver.start(system)
        return {"w": S @ inner["w"], "S": S, "system": system, "inner": inner}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        inner = self.solver.step(state["system"], state["inner"])
        return {**state, "w": state["S"] @ inner["w"], "inner": inner}
