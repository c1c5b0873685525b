"""Any solver in the metric of a preconditioner."""

from dataclasses import dataclass
from typing import Any

from interp.solvers.iterate import Solver
from interp.solvers.preconditioners import Preconditioner, apply, factor_of, inverse_of, transform
from interp.solvers.problems import LinearSystem, Quadratic


@dataclass(frozen=True, eq=False)
class Preconditioned:
    """The solver on Lᵀ G L v = Lᵀ moment with P⁻¹ = L Lᵀ; w = L v.

    Every gradient of the solver becomes P⁻¹ (G w − moment) and every bound speaks of the spectrum of P⁻¹G:
    `Preconditioned(ConjugateGradient(), jacobi)` is PCG, `Preconditioned(GradientDescent(1.0), row_sums)` is
    preconditioned Richardson, α ← α + P⁻¹(y − (K + λI) α) with P = D + λI, which converges for all data (MATH §6), and
    `Preconditioned(Nesterov(), row_sums)` preconditioned Nesterov. Where G is singular the limit has least P-norm.

    Source: Saad, Iterative Methods for Sparse Linear Systems, §9.2 (split preconditioning).
    """

    solver: Solver
    preconditioner: Preconditioner

    def start(self, problem: Quadratic) -> dict[str, Any]:
        L = factor_of("Preconditioned", inverse_of("Preconditioned", self.preconditioner, problem))
        system = LinearSystem(transform(L, problem.G), apply(L.mT if L.shape[-1] > 1 else L, problem.moment))
        inner = self.solver.start(system)
        return {"w": apply(L, inner["w"]), "L": L, "system": system, "inner": inner}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        inner = self.solver.step(state["system"], state["inner"])
        return {**state, "w": apply(state["L"], inner["w"]), "inner": inner}
