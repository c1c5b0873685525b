"""The loop with a stopping rule: what was reached is always said."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.solvers.iterate import Solver, check_finite, check_steps
from interp.solvers.problems import LeastSquares, Quadratic


@dataclass(frozen=True, eq=False)
class Solution:
    """Where a solver stopped, prompt by prompt.

    Args:
        w: the first iterate of each prompt that stopped, or the last one.
        steps: how many steps led to it.
        converged: is the residual at most the tolerance.
        at_floor: did it stop at rounding, which more steps cannot mend.
        residual: the relative gradient ‖G w − moment‖ / ‖moment‖.
        tolerance: what was asked for.
    """

    w: Float[Tensor, "batch d out"]
    steps: Int[Tensor, "batch"]
    converged: Bool[Tensor, "batch"]
    at_floor: Bool[Tensor, "batch"]
    residual: Float[Tensor, "batch"]
    tolerance: float

    def __str__(self) -> str:
        count, done = len(self.steps), int(self.converged.sum())
        least, most = int(self.steps.min()), int(self.steps.max())
        steps = f"{most} steps" if least == most else f"{least} to {most} steps"
        stuck = f", {int(self.at_floor.sum())} at the rounding floor" if self.at_floor.any() else ""
        head = "converged" if done == count else f"NOT converged on {count - done} of {count} prompts{stuck}"
        return f"{head}: {steps}, relative gradient at most {self.residual.max():.1e} (asked for {self.tolerance:.1e})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without w."""
        plain = {name: value for name, value in asdict(self).items() if name != "w"}
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in plain.items()}


def solve(solver: Solver, problem: Quadratic, *, tolerance: float = 1e-8, max_steps: int = 100) -> Solution:
    """Step until the relative gradient ‖G w − moment‖ / ‖moment‖ of every prompt is at most the tolerance.

    A prompt keeps the iterate at which it stopped; it also stops, not converged, where its gradient is no larger than
    the rounding of its own computation. A solver of limited `depth` (a rule from a transformer) gets no more steps than
    that. The relative error of w can be up to κ(G) times the relative gradient: where κ(A) = 1e4, ask for less.

    Raises:
        ValueError: fewer than one step, a tolerance below 0, or a step that diverges, with the step and ‖w‖: a value is
            not finite, or the relative gradient has passed 1/ε of the precision, after which no digit is right.
    """
    check_steps("solve", max_steps)
    if not 0 <= tolerance < float("inf"):
        raise ValueError(f"solve: tolerance={tolerance} must be finite and at least 0")
    state, open_ended = solver.start(problem), getattr(solver, "depth", None)
    found = _stop(problem, None, state["w"], 0, tolerance)
    for step in range(1, (max_steps if open_ended is None else min(max_steps, open_ended)) + 1):
        if (found.converged | found.at_floor).all():
            break
        state = solver.step(problem, state)
        before, found = found, _stop(problem, found, state["w"], step, tolerance)
        check_finite(solver, found.w, step, before.w)
        _check_bounded(solver, found, step)
    return found


def relative_gradient(problem: Quadratic, w: Float[Tensor, "batch d out"]) -> tuple[Tensor, Tensor]:
    """‖G w − moment‖ / ‖moment‖ [batch], and what rounding makes of it. From the rows, Aᵀ(A w − C), where there are."""
    eps = torch.finfo(w.dtype).eps
    if isinstance(problem, LeastSquares):
        fitted = problem.A @ w
        gradient = problem.A.mT @ (fitted - problem.C) + problem.lam * w
        size = _norm(problem.A) * (_norm(fitted) + _norm(problem.C)) + problem.lam * _norm(w)
    else:
        gradient, size = problem.gradient(w), _norm(problem.G) * _norm(w) + _norm(problem.moment)
    unit = _norm(problem.moment)
    unit = torch.where(unit > 0, unit, 1)
    return _norm(gradient) / unit, eps * size / unit


def _norm(matrix: Float[Tensor, "batch row column"]) -> Float[Tensor, "batch"]:
    return torch.linalg.matrix_norm(matrix)


def _stop(problem: Quadratic, before: Solution | None, w: Tensor, step: int, tolerance: float) -> Solution:
    """The solution after a step: prompts that had stopped stay as they are."""
    residual, rounding = relative_gradient(problem, w)
    steps, converged = torch.full((len(w),), step), residual <= tolerance
    at_floor = ~converged & (residual <= rounding)
    if before is None:
        return Solution(w, steps, converged, at_floor, residual, tolerance)
    stopped = before.converged | before.at_floor
    return Solution(
        torch.where(stopped[:, None, None], before.w, w),
        torch.where(stopped.cpu(), before.steps, steps),
        before.converged | (converged & ~stopped),
        before.at_floor | (at_floor & ~stopped),
        torch.where(stopped, before.residual, residual),
        tolerance,
    )


def _check_bounded(solver: Solver, found: Solution, step: int) -> None:
    worst = float(found.residual.max())
    if worst > 1 / torch.finfo(found.residual.dtype).eps:
        raise ValueError(
            f"{type(solver).__name__}: step {step} diverges: the relative gradient has reached {worst:.3g} and "
            f"‖w‖ {float(_norm(found.w).max()):.3g}; take smaller coefficients, or larger norms"
        )
