"""EAGLE that sees its rows through a random sketch: what rank-limited heads can compute."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.eagle import THEORY, check_coefficients
from interp.solvers.masked_rows import unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.seeds import mixed
from interp.solvers.settings import Numbers, check_whole, number_at, rows
from interp.solvers.spectral_norm import squared_norm
from interp.solvers.units import rescaled


@dataclass(frozen=True)
class SketchedEAGLE:
    """A ← A + η A S SᵀAᵀA/ν²,  C ← C − γ A S SᵀAᵀC/ν²,  B ← B + η B S SᵀAᵀA/ν²,  D ← D − γ B S SᵀAᵀC/ν², ν = ‖A S‖₂.

    S [d, r] is a fresh uniform orthonormal frame each step, the same for all prompts; r = d is EAGLE. The blocks start
    at A, C, B = I, D = 0; w = −D. For queries B in the row space of A, D − B A⁺C is conserved as in EAGLE, whatever S:
    the context rows are multiplied from the left by I + ηK and I − γK, K = A S SᵀAᵀ/ν², and these queries are
    combinations of them. A query in the null space of A does not stay there (A S mixes it in), so where A is singular w
    solves A w = C but is not of least norm. There is no polynomial in one G. A step costs n·d·r, not n·d².

    A sketch costs the order: with r < d convergence is linear. Measured steps to 1e-8 (d = 128, κ = 10): theory 10 at
    r = d, then 58, 115, 233, 439 at d/2, d/4, d/8, d/16 (∝ d/r); T₃ 18, then 53, 85, 135, 219.

    Args:
        sketch: r.
        eta, gamma: signed coefficients in units of 1/ν², theory's if left out, numbers or schedules as in EAGLE.
        seed: of the frames.

    Source: Lutz, Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702, algorithm 1 with a sketch.
    """

    sketch: int
    eta: Numbers = THEORY[0]
    gamma: Numbers = THEORY[1]
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("SketchedEAGLE", "sketch", self.sketch, None)
        check_whole("SketchedEAGLE", "seed", self.seed, None)
        check_coefficients("SketchedEAGLE", self.eta, self.gamma)

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("SketchedEAGLE", problem)
        if not 1 <= self.sketch <= A.shape[-1]:
            raise ValueError(f"SketchedEAGLE: sketch={self.sketch} must lie between 1 and the {A.shape[-1]} columns")
        return unit_queries(A, C)

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        state = rescaled(state)
        A, C, B, D = (state[name] for name in "ACBD")
        eta, gamma = (number_at("SketchedEAGLE", name, getattr(self, name), state["step"]) for name in ("eta", "gamma"))
        S = frame(A.shape[-1], self.sketch, mixed(self.seed, state["step"])).to(A)
        context, query = A @ S, B @ S
        square = squared_norm(context)
        to_x, to_y = context.mT @ A * (eta / square), context.mT @ C * (gamma / square)
        A, C, B, D = A + context @ to_x, C - context @ to_y, B + query @ to_x, D - query @ to_y
        return {**state, "w": -D, "A": A, "C": C, "B": B, "D": D, "step": state["step"] + 1}


def frame(d: int, r: int, seed: int) -> Float[Tensor, "d r"]:
    """Orthonormal columns, uniform: the Q of a seeded normal matrix."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(d, r, generator=generator, dtype=torch.float64))[0]
