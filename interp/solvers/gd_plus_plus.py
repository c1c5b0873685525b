"""GD++: gradient descent that also conditions the inputs, with fixed step sizes."""

from dataclasses import dataclass
from typing import Any

from interp.solvers.masked_rows import layer, unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.settings import check_between, rows


@dataclass(frozen=True)
class GDPlusPlus:
    """A ← A + η A AᵀA,  C ← C − γ A AᵀC,  B ← B + η B AᵀA,  D ← D − γ B AᵀC, the same η ≤ 0 < γ in every layer.

    The blocks start at A, C, B = I (unit queries), D = 0, and w = −D. With x_l = g p_l² on an eigenvalue g of AᵀA the
    error is Π (1 − γ x_l), x_{l+1} = x_l (1 + η x_l)²: η = 0 is gradient descent. Converges for 0 < γ < 2/λ_max and
    −2/λ_max < η ≤ 0. Fixed units cost the rate in the end: for η < 0, x_l → 1/(2|η|l), and the error falls only like
    l^(−γ/2|η|).

    Source: von Oswald et al. 2023 (their curvature correction γ is −η here). The conserved D − B A⁺C is MATH §4.
    """

    eta: float
    gamma: float

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("GDPlusPlus", problem)
        bound = float(2 / problem.spectrum[1].max())
        check_between("GDPlusPlus", "gamma", self.gamma, bound, "2/λ_max")
        if not -bound < self.eta <= 0:
            raise ValueError(
                f"GDPlusPlus: eta={self.eta} diverges; it must be at most 0 and above -2/λ_max = {-bound:.6g}"
            )
        return unit_queries(A, C)

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        return layer(state, self.eta, self.gamma)
