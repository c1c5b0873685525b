"""EAGLE: both blocks conditioned and completed, in units of the current norm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.solvers.masked_rows import layer, unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.seeds import mixed
from interp.solvers.settings import Numbers, check_whole, number_at, numbers, rows
from interp.solvers.spectral_norm import given_norm, largest_eigenvalue, power_squared_norm, squared_norm
from interp.solvers.units import rescaled

THEORY = (-1 / 3, 1.0)
T3 = (-4 / 3, 4 / 3)


@dataclass(frozen=True, eq=False)
class EAGLE:
    """A ← A + η A AᵀA/ν²,  C ← C − γ A AᵀC/ν²,  B ← B + η B AᵀA/ν²,  D ← D − γ B AᵀC/ν², ν = ‖A_l‖₂ of the current A_l.

    The blocks start at A, C, B = I (unit queries), D = 0; w = −D is s_l(AᵀA) AᵀC and B_any @ w predicts every query.
    On an eigenvalue σ² of AᵀA: p ← p (1 + η σ²p²/ν²), r ← r (1 − γ σ²p²/ν²), and r is the error (MATH §4).

    `EAGLE()` is theory, (η, γ) = (−1/3, 1): second order, norms (2/3)^l ‖A‖. `EAGLE(*T3)` is (−4/3, 4/3): σ r is
    T_{3^L}(σ)/3^L in units of ‖A‖, a factor 3 a layer whatever κ. Numbers converge for −2 < η ≤ 0 and 0 < γ < 2, unless
    some σ is sent to 0 before it is done: (−1, 1.9) with the exact norm stalls, as η = −1 sends σ = ν to 0.
    Sequences and tensors [step] are free schedules, one entry a layer, not checked: they may expand at one layer and
    contract at the next.
    Where A has a null space and C a part outside the range of A, rounding in that null space grows in w by 9/4 a layer
    in theory and by 9 for T₃: stop when the error has settled.

    A and B are carried in units of A's size ("scale" of the state), which changes no iterate: (2/3)^l would underflow.

    Power iterations estimate ν from below, so the coefficients act as cη and cγ, c = ν²/estimate ≥ 1: theory bears
    c < 2, T₃ only c < 3/2. Measured on log-uniform spectra (d = 40 and 200, κ = 1e2 and 1e4, the largest c of a run):
    with 4 iterations theory has c ≤ 1.4 and the exact norm's step counts; T₃ has c up to 8, up to 1.8 with 12, which
    costs it 0 to 3 steps. 1 iteration (c in the hundreds) does not converge.

    Args:
        eta, gamma: signed coefficients in units of 1/ν², a number or a schedule with one a layer.
        norms: ν for each layer, [step], or [step, batch]; without them the spectral norm of the prompt's current A_l.
        power_iterations: take the norm by so many products with AᵀA from a seeded vector; exactly if left out.
        seed: of those vectors, another one each step.

    Source: Lutz, Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702, algorithm 1 (η with the opposite sign).
    """

    eta: Numbers = THEORY[0]
    gamma: Numbers = THEORY[1]
    norms: Float[Tensor, "step *batch"] | Sequence[float] | None = None
    power_iterations: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_coefficients("EAGLE", self.eta, self.gamma)
        check_whole("EAGLE", "seed", self.seed, None)
        if self.power_iterations is not None:
            check_whole("EAGLE", "power_iterations", self.power_iterations, None)
            if self.power_iterations < 1:
                raise ValueError(f"EAGLE: power_iterations={self.power_iterations} must be at least 1, or left out")
        if self.power_iterations is not None and self.norms is not None:
            raise ValueError("EAGLE: norms and power_iterations are two ways to set ν; give one of them")

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("EAGLE", problem)
        return unit_queries(A, C)

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        state = rescaled(state)
        G, step = state["A"].mT @ state["A"], state["step"]
        square = self.square(state, G)
        eta, gamma = (number_at("EAGLE", name, getattr(self, name), step) for name in ("eta", "gamma"))
        return layer(state, eta / square, gamma / square, G)

    def square(self, state: dict[str, Any], G: Float[Tensor, "batch d d"]) -> Tensor:
        """ν² of a step [batch, 1, 1] in units of A's scale; G is AᵀA."""
        step, A = state["step"], state["A"]
        if self.norms is not None:
            return (given_norm("EAGLE", self.norms, step, A) / state["scale"]) ** 2
        if self.power_iterations is not None:
            return power_squared_norm(A, self.power_iterations, mixed(self.seed, step))
        return largest_eigenvalue(G) if A.shape[-1] <= A.shape[-2] else squared_norm(A)


def check_coefficients(owner: str, eta: Numbers, gamma: Numbers, names: tuple[str, str] = ("eta", "gamma")) -> None:
    """Numbers within the bounds in which every layer contracts; schedules are free, but finite."""
    (of_eta, e), (of_gamma, c) = ((name, numbers(owner, name, v)) for name, v in zip(names, (eta, gamma), strict=True))
    if isinstance(e, float) and not -2 < e <= 0:
        raise ValueError(f"{owner}: {of_eta}={e} diverges in units of 1/‖A‖²; it must be at most 0 and above -2")
    if isinstance(c, float) and not 0 < c < 2:
        raise ValueError(
            f"{owner}: {of_gamma}={c} diverges or stands still in units of 1/‖A‖²; it must lie between 0 and 2"
        )
