"""EAGLE on rows that lie on several machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.solvers.eagle import T3, check_coefficients
from interp.solvers.masked_rows import context_rows, unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.settings import Numbers, check_whole, machine_rows, number_at
from interp.solvers.spectral_norm import given_norm, squared_norm
from interp.solvers.units import rescaled


@dataclass(frozen=True, eq=False)
class DistributedEAGLE:
    """Machine μ: A_μ ← A_μ + η A_μ A_μᵀA_μ/ν_μ²,  C_μ ← C_μ − γ A_μ A_μᵀC_μ/ν_μ². The query rows see all machines:

        B ← B + η' B mean_μ A_μᵀA_μ/ν_μ²,   D ← D − γ' B mean_μ A_μᵀC_μ/ν_μ²,   from B = I, D = 0; w = −D

    ν_μ is the spectral norm of machine μ's current rows. One machine is EAGLE. For more, the conserved quantity and the
    closed form in one G no longer hold. With γ = −η (T₃, the default) A_μ and C_μ are multiplied by the same matrix, so
    labels C_μ = A_μ W stay consistent at every layer; with γ' = −η' as well, the queries run gradient descent on
    mean_μ A_μᵀA_μ/ν_μ² of the current rows. (−1/3, 1/3) with query=(−1, 1) turns A_μ/ν_μ into partial isometries, and
    the rate into 1 − α, α the diversity index (MATH §4); T₃ needs about a third more steps. Theory's (−1/3, 1) finishes
    a machine's own labels first and stalls. With noisy labels the limit is not the least-squares solution of all rows.
    Where a machine has more rows than rank, rounding in its null space grows by 3/2 a layer ((−1/3, 1/3)) or 3 (T₃):
    what has not been reached after 90 or 33 steps, in float64, will not be (AcceleratedDistributedEAGLE stops in time).
    A_μ and C_μ are carried in units of A_μ's size ("scale" of the state), which changes no iterate.

    Args:
        machines: the rows are split evenly, in order.
        eta, gamma: of the context rows, as in EAGLE: numbers in (−2, 0] and (0, 2), or free schedules.
        query: (η', γ') of the query rows, within the same bounds, the context's if left out.
        average: divide the query rows' sums by the number of machines; a transformer's heads sum.
        norms: one ν for all machines of a layer, [step] or [step, batch]: what shared weights can express.

    Source: Lutz, Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702, algorithm 1 (every machine runs the same
    update on its own rows, the query rows are averaged).
    """

    machines: int
    eta: Numbers = T3[0]
    gamma: Numbers = T3[1]
    query: tuple[Numbers, Numbers] | None = None
    average: bool = True
    norms: Float[Tensor, "step *batch"] | Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_whole("DistributedEAGLE", "machines", self.machines)
        check_coefficients("DistributedEAGLE", self.eta, self.gamma)
        if self.query is None:
            return
        if not isinstance(self.query, Sequence) or len(self.query) != 2:
            raise ValueError(f"DistributedEAGLE: query={self.query!r} must be a pair (η', γ'), or left out")
        check_coefficients("DistributedEAGLE", *self.query, names=("query's eta", "query's gamma"))

    def start(self, problem: Quadratic) -> dict[str, Any]:
        return unit_queries(*machine_rows("DistributedEAGLE", problem, self.machines))

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        state, step, name = rescaled(state, "C"), state["step"], "DistributedEAGLE"
        if self.norms is None:
            square = squared_norm(state["A"])
        else:
            square = (given_norm(name, self.norms, step, state["A"])[:, None] / state["scale"]) ** 2
        eta, gamma = (number_at(name, "eta or gamma", value, step) for value in (self.eta, self.gamma))
        A, C, G, moment = context_rows(state, eta / square, gamma / square)
        query = (self.eta, self.gamma) if self.query is None else self.query
        query_eta, query_gamma = (number_at(name, "query", value, step) for value in query)
        share = 1 / self.machines if self.average else 1.0
        B, D = state["B"], state["D"]
        B, D = (
            B + query_eta * share * B @ (G / square).sum(1),
            D - query_gamma * share * B @ (moment / square).sum(1),
        )
        return {**state, "w": -D, "A": A, "C": C, "B": B, "D": D, "step": step + 1}
