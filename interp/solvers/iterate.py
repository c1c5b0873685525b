"""Least-squares problems, the one loop that runs a solver on them, and what a solver is."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class LeastSquares:
    """Minimise ½‖A w − C‖² for each prompt of a batch.

    Args:
        A: inputs [batch, n, d].
        C: labels [batch, n, out].
    """

    A: Tensor
    C: Tensor

    def __post_init__(self) -> None:
        shapes = f"{list(self.A.shape)} and {list(self.C.shape)}"
        if self.A.ndim != 3 or self.C.ndim != 3 or self.A.shape[:2] != self.C.shape[:2]:
            raise ValueError(f"LeastSquares: A must be [batch, n, d] and C [batch, n, out], got {shapes}")
        if self.A.dtype != self.C.dtype or not self.A.dtype.is_floating_point:
            types = f"{self.A.dtype} and {self.C.dtype}"
            raise ValueError(f"LeastSquares: A and C must share a real floating dtype, got {types}")

    @cached_property
    def G(self) -> Float[Tensor, "batch d d"]:
        """AᵀA."""
        return self.A.mT @ self.A

    @cached_property
    def moment(self) -> Float[Tensor, "batch d out"]:
        """AᵀC."""
        return self.A.mT @ self.C

    @cached_property
    def spectrum(self) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
        """Smallest positive and largest eigenvalue of G."""
        values = torch.linalg.eigvalsh(self.G)
        largest = values[:, -1]
        floor = torch.finfo(values.dtype).eps * self.G.shape[-1] * largest
        positive = torch.where(values > floor[:, None], values, torch.inf)
        return positive.amin(1), largest

    def gradient(self, w: Float[Tensor, "batch d out"]) -> Float[Tensor, "batch d out"]:
        """G w − AᵀC."""
        return self.G @ w - self.moment


@runtime_checkable
class Solver(Protocol):
    """Settings of one algorithm; a state is a dict of tensors whose "w" is the iterate [batch, d, out]."""

    def start(self, problem: LeastSquares) -> dict[str, Any]: ...

    def step(self, problem: LeastSquares, state: dict[str, Any]) -> dict[str, Any]: ...


def iterate(solver: Solver, problem: LeastSquares, steps: int) -> Float[Tensor, "step batch d out"]:
    """The iterates w_0 … w_steps of a solver.

    Raises:
        ValueError: fewer than one step.
    """
    if steps < 1:
        raise ValueError(f"iterate: steps={steps} must be at least 1")
    state = solver.start(problem)
    iterates = [state["w"]]
    for _ in range(steps):
        state = solver.step(problem, state)
        iterates.append(state["w"])
    return torch.stack(iterates)
