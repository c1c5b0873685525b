"""Gradient descent with a fixed step or a schedule of steps. On a KernelSystem this is Richardson iteration."""

from dataclasses import dataclass
from typing import Any

import torch

from interp.solvers.problems import Quadratic
from interp.solvers.settings import Numbers, check_between, number_at, numbers


@dataclass(frozen=True)
class GradientDescent:
    """w ← w − η (G w − moment), from w = 0.

    Converges for 0 < η < 2/λ_max(G). Without a step size, each prompt gets the one with the best worst-case rate,
    η = 2/(λ_min + λ_max), λ_min the smallest positive eigenvalue; its rate is (λ_max − λ_min)/(λ_max + λ_min).
    A sequence or tensor [step] is a schedule, one step size a step: each must be positive, and after them the error on
    an eigenvalue g is Π (1 − η_l g), which need not contract at every step.

    On (K + λI) α = y: α ← α + η (y − (K + λI) α), Richardson 1910.
    Source: Nesterov, Introductory Lectures on Convex Optimization, theorem 2.1.15.
    """

    step_size: Numbers | None = None

    def start(self, problem: Quadratic) -> dict[str, Any]:
        smallest, largest = problem.spectrum
        given = () if self.step_size is None else numbers("GradientDescent", "step_size", self.step_size)
        if isinstance(given, tuple):
            for eta in given:
                check_between("GradientDescent", "step_size", eta, float("inf"), "infinity")
        else:
            check_between("GradientDescent", "step_size", given, float(2 / largest.max()), "2/λ_max")
        best = 2 / (smallest + largest)
        return {"w": torch.zeros_like(problem.moment), "best": best[:, None, None], "step": 0}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        best, step = state["best"], state["step"]
        eta = best if self.step_size is None else number_at("GradientDescent", "step_size", self.step_size, step)
        return {"w": state["w"] - eta * problem.gradient(state["w"]), "best": best, "step": step + 1}
