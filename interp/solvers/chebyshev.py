"""Chebyshev semi-iteration: the best polynomial of every degree, by a three-term recurrence."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.interval import interval_of
from interp.solvers.problems import Quadratic


@dataclass(frozen=True)
class ChebyshevSemiIteration:
    """w_{k+1} = w_{k−1} + ω_{k+1} (w_k − w_{k−1} − (G w_k − moment)/θ), from w = 0.

    θ and δ are centre and half-width of the interval [a, b] of eigenvalues, ρ = δ/θ, ω_1 = 1, ω_2 = 2/(2 − ρ²),
    ω_{k+1} = 1/(1 − ρ² ω_k/4). The error on an eigenvalue g is T_k((θ − g)/δ) / T_k(θ/δ): the minimax polynomial on
    [a, b] at every k, rate (√κ − 1)/(√κ + 1) a step with κ = b/a. Converges if b ≥ λ_max(G) and a > 0.

    Args:
        interval: (a, b); each prompt's own smallest positive and largest eigenvalue if left out.

    Source: Golub and Varga 1961; Golub and Van Loan, Matrix Computations, §11.2.8.
    """

    interval: tuple[float, float] | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        low, high = interval_of("ChebyshevSemiIteration", self.interval, problem)
        w = torch.zeros_like(problem.moment)
        rho = (high - low) / (high + low)
        return {"w": w, "before": w, "centre": (high + low) / 2, "rho": rho, "omega": torch.ones_like(rho), "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        w, before, rho, step = state["w"], state["before"], state["rho"], state["step"]
        share = {0: 0.0, 1: 0.5}.get(step, 0.25)
        omega = 1 / (1 - share * rho**2 * state["omega"])
        moved = before + omega * (w - before - problem.gradient(w) / state["centre"])
        return {**state, "w": moved, "before": w, "omega": omega, "step": step + 1}
