"""What a solver is, and the one loop that runs it."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Solver(Protocol):
    """Settings of one algorithm; a state is a dict whose "w" is the iterate [batch, d, out].

    The problem is a LeastSquares or a KernelSystem; a solver that takes only one of them says so.
    """

    def start(self, problem: Any) -> dict[str, Any]: ...

    def step(self, problem: Any, state: dict[str, Any]) -> dict[str, Any]: ...


def states(solver: Solver, problem: Any, steps: int) -> list[dict[str, Any]]:
    """The states 0 … steps of a solver: what it carries along, beside the iterates.

    Raises:
        ValueError: fewer than one step.
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"iterate: steps={steps} must be a whole number of at least 1")
    seen = [solver.start(problem)]
    for _ in range(steps):
        seen.append(solver.step(problem, seen[-1]))
    return seen


def iterate(solver: Solver, problem: Any, steps: int) -> Float[Tensor, "step batch d out"]:
    """The iterates w_0 … w_steps of a solver; predictions for queries B [batch, query, d] are B @ them.

    Raises:
        ValueError: fewer than one step, or a setting that diverges on this problem.
    """
    return torch.stack([state["w"] for state in states(solver, problem, steps)])
