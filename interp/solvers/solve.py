"""The loop with a stopping rule: what was reached is always said."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.solvers.iterate import Solver, check_finite, check_steps
from interp.solvers.problems import LeastSquares, Quadratic
from interp.solvers.units import unit_of

MEASURES = {"gradient": "relative gradient", "step": "relative step"}

BOUNDED = {
    "gradient": "the relative error in w can be κ(A)² times that",
    "step": "the relative error in w is at most ρ/(1 − ρ) times that where a step gains a factor ρ",
}


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solver stopped, prompt by prompt.

    Args:
        w: the first iterate of each prompt that stopped, or the last one.
        steps: how many steps led to it.
        converged: is the residual at most the tolerance.
        at_floor: did it stop at rounding, which more steps cannot mend.
        residual: the relative gradient ‖G w − moment‖ / ‖moment‖, or the relative step ‖w_k − w_{k−1}‖ / ‖w_k‖.
        tolerance, measure: what was asked for.
    """

    w: Float[Tensor, "batch d out"]
    steps: Int[Tensor, "batch"]
    converged: Bool[Tensor, "batch"]
    at_floor: Bool[Tensor, "batch"]
    residual: Float[Tensor, "batch"]
    tolerance: float
    measure: str = "gradient"

    @property
    def stopped(self) -> Bool[Tensor, "batch"]:
        return self.converged | self.at_floor

    def __str__(self) -> str:
        count, done = len(self.steps), int(self.converged.sum())
        least, most = int(self.steps.min()), int(self.steps.max())
        steps = f"{most} steps" if least == most else f"{least} to {most} steps"
        stuck = f", {int(self.at_floor.sum())} at the rounding floor" if self.at_floor.any() else ""
        head = "converged" if done == count else f"NOT converged on {count - done} of {count} prompts{stuck}"
        reached = f"{MEASURES[self.measure]} at most {self.residual.max():.1e} (asked for {self.tolerance:.1e})"
        return f"{head}: {steps}, {reached}; {BOUNDED[self.measure]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without w."""
        plain = {name: value for name, value in asdict(self).items() if name != "w"}
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in plain.items()}


def solve(
    solver: Solver, problem: Quadratic, *, tolerance: float = 1e-8, max_steps: int = 100, measure: str = "gradient"
) -> Solution:
    """Step until the residual of every prompt is at most the tolerance; a prompt keeps the iterate at which it stopped.

    A prompt also stops, not converged, where rounding is all that is left: its gradient is no larger than the rounding
    of its computation (and its steps no longer shrink, where steps are measured). A solver of limited `depth` (a rule
    from a transformer) gets no more steps than that.

    Args:
        measure: "gradient", ‖G w − moment‖ / ‖moment‖, which says little of w where κ is large: the relative error of w
            can be κ(A)² times as large (measured with EAGLE at 1e-8: error 1e-7 at κ = 1e2, .05 at 1e4, .4 at 1e5), and
            "converged" then means the gradient alone. What is printed says so.
            "step", ‖w_k − w_{k−1}‖ / ‖w_k‖: the error left is at most ρ/(1 − ρ) times that for a method that gains a
            factor ρ a step, so below it for EAGLE and T₃, and far above it for gradient descent.

    Raises:
        ValueError: fewer than one step, a tolerance below 0, an unknown measure, or a step that diverges, with the step
            and the size of w: a value is not finite, or the relative gradient has passed 1/ε, after which no digit is
            right.
    """
    check_steps("solve", max_steps)
    if not 0 <= tolerance < float("inf"):
        raise ValueError(f"solve: tolerance={tolerance} must be finite and at least 0")
    if measure not in MEASURES:
        raise ValueError(f"solve: measure={measure!r} is unknown; known measures: {', '.join(MEASURES)}")
    state, depth = solver.start(problem), getattr(solver, "depth", max_steps)
    found = _first(problem, state["w"], tolerance, measure)
    for step in range(1, min(max_steps, depth) + 1):
        if found.stopped.all():
            break
        state = solver.step(problem, state)
        w = torch.where(found.stopped[:, None, None], found.w, state["w"])
        check_finite(solver, w, step, found.w)
        found = _next(solver, problem, found, w, step)
    return found


def _first(problem: Quadratic, w: Tensor, tolerance: float, measure: str) -> Solution:
    gradient, _ = relative_gradient(problem, w)
    residual = gradient if measure == "gradient" else torch.where(gradient == 0, 0, torch.inf).to(gradient)
    nowhere = torch.zeros_like(residual, dtype=torch.bool)
    steps = torch.zeros(len(w), dtype=torch.int64)
    return Solution(w, steps, residual <= tolerance, nowhere, residual, tolerance, measure)


def _next(solver: Solver, problem: Quadratic, found: Solution, w: Tensor, step: int) -> Solution:
    """The solution after a step: prompts that had stopped stay as they are."""
    gradient, rounding = relative_gradient(problem, w)
    _check_bounded(solver, float(gradient.max()), w, step)
    residual, floor = gradient, gradient <= rounding
    if found.measure == "step":
        size = _norm(w)
        residual = _norm(w - found.w) / torch.where(size > 0, size, 1)
        floor &= residual >= found.residual
    moving, converged = ~found.stopped, residual <= found.tolerance
    return replace(
        found,
        w=w,
        steps=torch.where(moving.cpu(), step, found.steps),
        converged=found.converged | (moving & converged),
        at_floor=found.at_floor | (moving & floor & ~converged),
        residual=torch.where(moving, residual, found.residual),
    )


def relative_gradient(problem: Quadratic, w: Float[Tensor, "batch d out"]) -> tuple[Tensor, Tensor]:
    """‖G w − moment‖ / ‖moment‖ [batch], and what rounding makes of it. From the rows, Aᵀ(A w − C), where there are,
    in units of A and C: their squares could overflow or vanish."""
    eps = torch.finfo(w.dtype).eps
    if isinstance(problem, LeastSquares):
        of_A, of_C = unit_of(problem.A), unit_of(problem.C)
        A, C, w = problem.A / of_A, problem.C / of_C, w * (of_A / of_C)
        moment, lam = (C.mT @ A).mT, problem.lam / of_A / of_A
        gradient = A.mT @ (A @ w - C) + lam * w
        size = _norm(A) * (_norm(A) * _norm(w) + _norm(C)) + lam[:, 0, 0] * _norm(w)
    else:
        gradient, moment = problem.gradient(w), problem.moment
        size = _norm(problem.G) * _norm(w) + _norm(moment)
    unit = _norm(moment)
    unit = torch.where(unit > 0, unit, 1)
    return _norm(gradient) / unit, eps * size / unit


def _norm(matrix: Float[Tensor, "batch row column"]) -> Float[Tensor, "batch"]:
    unit = unit_of(matrix)
    return torch.linalg.matrix_norm(matrix / unit) * unit[:, 0, 0]


def _check_bounded(solver: Solver, gradient: float, w: Tensor, step: int) -> None:
    if gradient > 1 / torch.finfo(w.dtype).eps:
        raise ValueError(
            f"{type(solver).__name__}: step {step} diverges: the relative gradient has reached {gradient:.3g} and ‖w‖ "
            f"{float(_norm(w).max()):.3g}; take smaller coefficients, or larger norms"
        )
