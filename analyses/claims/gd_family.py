"""Gradient descent and GD++ of L steps in closed form on spectra, and their constants by line search."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from interp.solvers import LeastSquares
from interp.solvers.schedules import optimal_schedule
from models.prompts import Prompts

SHARES = tuple(2.0 ** (step / 2) for step in range(-8, 17))
"""Of 1/λ, the grid from which constants are searched: from .06 to 256."""
ITERATIONS, STARTS = 200, 16

Steps = list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Spectral:
    """Prompts in the eigenvectors v of G = AᵀA, where a polynomial method is w_L = Σ v s_L(g) vᵀAᵀC.

    Args:
        g: eigenvalues of G.   V: eigenvectors, as columns.
        moment: VᵀAᵀC.         B, target: queries and answers.
    """

    g: Float[Tensor, "prompt x"]
    V: Float[Tensor, "prompt x x"]
    moment: Float[Tensor, "prompt x y"]
    B: Float[Tensor, "prompt query x"]
    target: Float[Tensor, "prompt query y"]

    @classmethod
    def of(cls, sample: Prompts) -> "Spectral":
        problem = LeastSquares(sample.A, sample.C)
        g, V = torch.linalg.eigh(problem.G)
        return cls(g, V, V.mT @ problem.moment, sample.B, sample.target)

    def weights(self, steps: Sequence[tuple[float | Tensor, float | Tensor]]) -> Float[Tensor, "prompt x y"]:
        """w after GD++ with (η_l, γ_l) a step, in the prompts' own units; η = 0 is gradient descent."""
        p, s = torch.ones_like(self.g), torch.zeros_like(self.g)
        for eta, gamma in steps:
            p, s = p * (1 + eta * self.g * p.square()), s + gamma * p.square() * (1 - self.g * s)
        return self.V @ (s[..., None] * self.moment)

    def log_error(self, steps: Sequence[tuple[float | Tensor, float | Tensor]]) -> Float[Tensor, ""]:
        """log of the pooled relative rms error of the predictions."""
        gap = self.B @ self.weights(steps) - self.target
        return (gap.square().sum() / self.target.square().sum()).log() / 2


def gradient_descent(prompts: Spectral, steps: int) -> Steps:
    """The one step size of least error."""
    unit = prompts.g.max().item()
    return _equal(prompts, steps, [(0.0, share / unit) for share in SHARES])


def gd_plus_plus(prompts: Spectral, steps: int) -> Steps:
    """The one pair η ≤ 0 < γ of least error, wherever it lies: few steps may leave the range in which many converge."""
    unit = prompts.g.max().item()
    starts = [(-eta / unit, gamma / unit) for eta in (0.0, *SHARES) for gamma in SHARES]
    return _equal(prompts, steps, starts)


def scheduled(prompts: Spectral, steps: int) -> Steps:
    """Pairs (η_l, γ_l) of their own in each step: the schedule of least rms error of w on these spectra, and from there
    L-BFGS on factors of the constants, for the error of the predictions."""
    unit = prompts.g.amax().item()
    sigma = prompts.g.clamp(min=0).sqrt() / unit**0.5
    kappa = (sigma.amax() / sigma.amin()).item()
    found = optimal_schedule(kappa, steps, spectrum=sigma.cpu(), criterion="rms", starts=STARTS)
    start = torch.tensor([found.eta, found.gamma]).T.to(prompts.g) / unit
    logs = torch.zeros(steps, 2).to(start).requires_grad_()
    optimiser = torch.optim.LBFGS([logs], max_iter=ITERATIONS, tolerance_change=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = prompts.log_error([(eta, gamma) for eta, gamma in start * logs.exp()])
        loss.backward()
        return loss

    optimiser.step(closure)
    return [(eta, gamma) for eta, gamma in (start * logs.detach().exp()).tolist()]


def _equal(prompts: Spectral, steps: int, starts: Sequence[tuple[float, float]]) -> Steps:
    """The best pair for all steps: the best of the starts, then Nelder-Mead on its logarithms; a 0 stays 0."""

    def error(pair: tuple[float, float]) -> float:
        return prompts.log_error([pair] * steps).nan_to_num(nan=torch.inf).item()

    eta, gamma = min(starts, key=error)
    free = [gamma] if eta == 0 else [gamma, -eta]

    def unpack(x: Sequence[float]) -> tuple[float, float]:
        values = [math.exp(float(value)) for value in x]
        return (-values[1] if eta else 0.0, values[0])

    options = {"xatol": 1e-8, "fatol": 1e-12}
    found = minimize(lambda x: error(unpack(x)), [math.log(v) for v in free], method="Nelder-Mead", options=options)
    return [unpack(found.x)] * steps
