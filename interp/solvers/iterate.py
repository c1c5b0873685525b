"""What a solver is, and the one loop that runs it."""

from collections.abc import Iterator
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


def run(solver: Solver, problem: Any, steps: int) -> Iterator[dict[str, Any]]:
    """The states 0 … steps of a solver, one by one: what it carries along, beside the iterates.

    Raises:
        ValueError: fewer than one step, or a step that diverges, with the step and the size reached.
    """
    check_steps("iterate", steps)
    state = solver.start(problem)
    yield state
    for step in range(1, steps + 1):
        before, state = state["w"], solver.step(problem, state)
        check_finite(solver, state["w"], step, before)
        yield state


def states(solver: Solver, problem: Any, steps: int) -> list[dict[str, Any]]:
    """All of them at once; same errors."""
    return list(run(solver, problem, steps))


def iterate(solver: Solver, problem: Any, steps: int) -> Float[Tensor, "step batch d out"]:
    """The iterates w_0 … w_steps of a solver; predictions for queries B [batch, query, d] are B @ them.

    Raises:
        ValueError: fewer than one step, a setting that diverges on this problem, or a step whose iterate is not finite.
    """
    return torch.stack([state["w"] for state in run(solver, problem, steps)])


def check_steps(owner: str, steps: int) -> None:
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"{owner}: steps={steps} must be a whole number of at least 1")


def check_finite(
    solver: Solver, w: Float[Tensor, "batch d out"], step: int, before: Float[Tensor, "batch d out"]
) -> None:
    """The iterate of a step is finite, or a sentence with the step and the largest norm before it."""
    if not w.isfinite().all():
        prompt = int((~w.flatten(1).isfinite().all(1)).nonzero()[0])
        largest = float(before[prompt].abs().max())
        raise ValueError(
            f"{type(solver).__name__}: step {step} diverges: w of prompt {prompt} is not finite, its largest entry "
            f"before was {largest:.3g}; take smaller coefficients or fewer steps"
        )
