"""EAGLE's estimation of w from rows that lie on several machines."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.eagle import THEORY, check_coefficients
from interp.solvers.problems import Quadratic
from interp.solvers.settings import Numbers, check_whole, machine_rows, number_at
from interp.solvers.spectral_norm import squared_norm
from interp.solvers.units import unit_of


@dataclass(frozen=True, eq=False)
class DistributedEstimation:
    """w ← w + γ mean_μ A_μᵀ K_μ (C_μ − X_μ w)/ν_μ²,  A_μ ← T_μ A_μ,  K_μ ← T_μ K_μ,  T_μ = I + η A_μ A_μᵀ/ν_μ².

    EAGLE's estimation of w (MATH §4: w ← w − H⁻¹∇) with each machine's own preconditioner, and their mean: X_μ, C_μ are
    the machine's rows, A_μ starts at X_μ, K_μ at I and w at 0, ν_μ = ‖A_μ‖₂. A round sends A_μᵀK_μ(C_μ − X_μ w)/ν_μ²
    (d·out floats) from every machine and w back to it. One machine is EAGLE. With C = X W the error is multiplied by
    I − γ Ḡ, Ḡ the mean of A_μᵀA_μ/ν_μ²: with theory's constants these tend to the projections on the machines' row
    spaces, and the factor to 1 − α, α the diversity index. `DistributedEAGLE(M, −1/3, 1/3, query=(−1, 1))` multiplies
    its query rows by the same matrices in the opposite order. A_μ and K_μ are carried in units of A_μ's size. Where
    a machine has more rows than rank, rounding grows by 9/4 a round, as in EAGLE: stop when the error has settled.

    Args:
        machines: the rows are split evenly, in order.
        eta, gamma: numbers or schedules, as in EAGLE.

    Source: Lutz, Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702 (estimating the parameter, distributed:
    every machine preconditions its own rows, their gradients are averaged); MATH §4.
    """

    machines: int
    eta: Numbers = THEORY[0]
    gamma: Numbers = THEORY[1]

    def __post_init__(self) -> None:
        check_whole("DistributedEstimation", "machines", self.machines)
        check_coefficients("DistributedEstimation", self.eta, self.gamma)

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = machine_rows("DistributedEstimation", problem, self.machines)
        K = torch.eye(A.shape[2]).to(A).expand(*A.shape[:3], A.shape[2])
        return {"w": A.new_zeros(len(A), A.shape[-1], C.shape[-1]), "A": A, "K": K, "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        X, C = machine_rows("DistributedEstimation", problem, self.machines)
        w, step, unit = state["w"], state["step"], unit_of(state["A"])
        eta, gamma = (number_at("DistributedEstimation", name, getattr(self, name), step) for name in ("eta", "gamma"))
        A, K = state["A"] / unit, state["K"] / unit
        square = squared_norm(A)
        turn = A @ A.mT * (eta / square)
        gradient = A.mT @ (K @ (C - X @ w[:, None])) / square
        return {"w": w + gamma * gradient.mean(1), "A": A + turn @ A, "K": K + turn @ K, "step": step + 1}
