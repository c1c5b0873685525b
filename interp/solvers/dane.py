"""DANE: every machine corrects its own problem by the global gradient, and the solutions are averaged."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.preconditioners import factor_of, transform
from interp.solvers.problems import Quadratic, rounding
from interp.solvers.settings import check_between, machine_rows


@dataclass(frozen=True)
class DANE:
    """w ← mean_μ argmin_v φ_μ(v) − ⟨∇φ_μ(w) − η ∇φ(w), v⟩ + ½ m ‖v − w‖², φ_μ(v) = ½‖A_μ v − C_μ‖², φ their mean.

    For these quadratics w ← w − η mean_μ (A_μᵀA_μ + m I)⁻¹ ∇φ(w), which is what is computed. Converges for
    0 < η < 2/λ_max(mean_μ (A_μᵀA_μ + mI)⁻¹ H), H = AᵀA / machines; at m = 0 that eigenvalue is at least 1, and
    machines that differ too much make η = 1 diverge: a larger m helps.

    Args:
        machines: the rows are split evenly, in order.
        regularisation: m ≥ 0; at 0 every machine needs d independent rows.
        step_size: η.

    Source: Shamir, Srebro and Zhang 2014, figure 1 and §4 (their μ is m).
    """

    machines: int
    regularisation: float = 0.0
    step_size: float = 1.0

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, _ = machine_rows("DANE", problem, self.machines)
        if not 0 <= self.regularisation < float("inf"):
            raise ValueError(f"DANE: regularisation={self.regularisation} must be finite and at least 0")
        hessians = A.mT @ A + self.regularisation * torch.eye(A.shape[-1]).to(A)
        values = torch.linalg.eigvalsh(hessians)
        if (values[..., 0] <= rounding(A) * values[..., -1]).any():
            raise ValueError("DANE: a machine's Hessian is singular; give regularisation > 0 or more rows a machine")
        inverse = torch.linalg.inv(hessians).mean(1) / self.machines
        inverse = (inverse + inverse.mT) / 2
        bound = float(2 / torch.linalg.eigvalsh(transform(factor_of("DANE", inverse), problem.G)).max())
        formula = "2/λ_max(mean (A_μᵀA_μ + mI)⁻¹ H)"
        check_between("DANE", "step_size", self.step_size, bound, formula)
        return {"w": torch.zeros_like(problem.moment), "inverse": inverse}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "w": state["w"] - self.step_size * state["inverse"] @ problem.gradient(state["w"])}
