"""EAGLE: both blocks conditioned and completed, in units of the current norm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.masked_rows import layer, unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.settings import at, rows

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
    Sequences are free schedules, one entry a layer, not checked: they may expand at one layer and contract at the next.
    Where A has a null space and C a part outside the range of A, rounding in that null space grows in w by 9/4 a layer
    in theory and by 9 for T₃: stop when the error has settled.

    Args:
        eta, gamma: signed coefficients in units of 1/ν², a number or a sequence with one a layer.
        norms: ν for each layer, [step], or [step, batch]; without them the spectral norm of the prompt's current A_l.

    Source: Lutz, Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702, algorithm 1 (η with the opposite sign).
    """

    eta: float | Sequence[float] = THEORY[0]
    gamma: float | Sequence[float] = THEORY[1]
    norms: Float[Tensor, "step *batch"] | Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_coefficients("EAGLE", self.eta, self.gamma)

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("EAGLE", problem)
        return unit_queries(A, C)

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        step = state["step"]
        if self.norms is None:
            square = squared_norm(state["A"])
        else:
            square = given_norm("EAGLE", self.norms, step, state["A"]) ** 2
        eta, gamma = at("EAGLE", "eta", self.eta, step), at("EAGLE", "gamma", self.gamma, step)
        return layer(state, eta / square, gamma / square)


def check_coefficients(owner: str, eta: float | Sequence[float], gamma: float | Sequence[float]) -> None:
    """Numbers within the bounds in which every layer contracts; schedules are free, but finite."""
    for name, value in (("eta", eta), ("gamma", gamma)):
        if isinstance(value, Sequence) and not all(math.isfinite(entry) for entry in value):
            raise ValueError(f"{owner}: {name}={value} holds NaN or inf")
    if isinstance(eta, int | float) and not -2 < eta <= 0:
        raise ValueError(f"{owner}: eta={eta} diverges in units of 1/‖A‖²; it must be at most 0 and above -2")
    if isinstance(gamma, int | float) and not 0 < gamma < 2:
        raise ValueError(
            f"{owner}: gamma={gamma} diverges or stands still in units of 1/‖A‖²; it must lie between 0 and 2"
        )


def squared_norm(A: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch 1 1"]:
    """‖A‖₂², the largest eigenvalue of the smaller Gram matrix; 1 for a matrix of zeros."""
    gram = A.mT @ A if A.shape[-1] <= A.shape[-2] else A @ A.mT
    largest = torch.linalg.eigvalsh(gram)[..., -1]
    return torch.where(largest > 0, largest, 1)[..., None, None]


def given_norm(
    owner: str, norms: Float[Tensor, "step *batch"] | Sequence[float], step: int, A: Tensor
) -> Float[Tensor, "#batch 1 1"]:
    """The norm of a layer, for all prompts or for each."""
    given = torch.as_tensor(norms, dtype=A.dtype, device=A.device)
    if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] != len(A)) or not (given > 0).all():
        raise ValueError(f"{owner}: norms must be positive, [step] or [step, {len(A)}], got {list(given.shape)}")
    if step >= len(given):
        raise ValueError(f"{owner}: norms has {len(given)} entries; ask for at most as many steps, or give more")
    return given[step].reshape(-1, 1, 1)
