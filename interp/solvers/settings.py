"""What the solvers' settings share: admissible steps, schedules, the kind of problem."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import KernelSystem, LeastSquares, Quadratic

Kind = TypeVar("Kind", LeastSquares, KernelSystem)
Setting = TypeVar("Setting", float, Tensor)
Numbers = float | Sequence[float] | Float[Tensor, "layer"] | np.ndarray
"""A number for all layers, or a schedule with one a layer."""


def check_between(owner: str, name: str, value: float, bound: float, formula: str) -> None:
    """0 < value < bound, or a sentence with the bound."""
    if not 0 < value < bound:
        raise ValueError(
            f"{owner}: {name}={value} diverges or stands still; it must lie between 0 and {formula} = {bound:.6g}"
        )


def check_momentum(owner: str, momentum: float | None) -> None:
    if momentum is not None and not 0 <= momentum < 1:
        raise ValueError(f"{owner}: momentum={momentum} must be at least 0 and below 1")


def check_whole(owner: str, name: str, value: Any, least: int | None = 1) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{owner}: {name}={value!r} must be a whole number")
    if least is not None and value < least:
        raise ValueError(f"{owner}: {name}={value} must be at least {least}")


def numbers(owner: str, name: str, value: Any) -> float | tuple[float, ...]:
    """A number as a float, a schedule (sequence, or array or tensor of one axis) as a tuple of floats; all finite."""
    if isinstance(value, np.ndarray | Tensor) and value.ndim < 2:
        value = value.tolist()
    if isinstance(value, Real):
        return float(value)
    entries = [numbers(owner, name, entry) for entry in value] if _is_schedule(value) else []
    flat = tuple(entry for entry in entries if isinstance(entry, float))
    if not flat or len(flat) < len(entries):
        raise ValueError(f"{owner}: {name}={value!r} must be a number, or a sequence or tensor [step] of numbers")
    if not all(math.isfinite(entry) for entry in flat):
        raise ValueError(f"{owner}: {name}={value} holds NaN or inf")
    return flat


def check_number(owner: str, name: str, value: Any) -> None:
    """One number, where a schedule has no meaning."""
    if not isinstance(numbers(owner, name, value), float):
        raise ValueError(f"{owner}: {name}={value!r} is a schedule; give one number")


def _is_schedule(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def number_at(owner: str, name: str, value: Numbers, step: int) -> float:
    """The number of a step: a single one holds for all steps, a schedule as far as it goes."""
    return at(owner, name, numbers(owner, name, value), step)


def at(owner: str, name: str, schedule: Setting | Sequence[Setting], step: int) -> Setting:
    """The setting of a step: a single one holds for all steps, a schedule as far as it goes."""
    if not isinstance(schedule, Sequence):
        return schedule
    if step >= len(schedule):
        raise ValueError(f"{owner}: {name} has {len(schedule)} entries; ask for at most as many steps, or give more")
    return schedule[step]


def require(owner: str, kind: type[Kind], problem: Quadratic) -> Kind:
    if not isinstance(problem, kind):
        raise ValueError(f"{owner}: solves a {kind.__name__}, got a {type(problem).__name__}")
    return problem


def rows(owner: str, problem: Quadratic) -> tuple[Float[Tensor, "batch n d"], Float[Tensor, "batch n out"]]:
    """A and C of a least-squares problem, for solvers that read rows and know of no ridge."""
    squares = require(owner, LeastSquares, problem)
    if squares.lam:
        raise ValueError(f"{owner}: has no ridge term, but lam={squares.lam}; give a LeastSquares with lam=0")
    return squares.A, squares.C


def machine_rows(
    owner: str, problem: Quadratic, machines: int
) -> tuple[Float[Tensor, "batch machine row d"], Float[Tensor, "batch machine row out"]]:
    """The rows split evenly, in order, over the machines."""
    A, C = rows(owner, problem)
    check_whole(owner, "machines", machines, None)
    if machines < 1 or A.shape[1] % machines:
        raise ValueError(f"{owner}: machines={machines} must be at least 1 and divide the {A.shape[1]} rows")
    return A.unflatten(1, (machines, -1)), C.unflatten(1, (machines, -1))


def row(owner: str, problem: Quadratic, step: int) -> tuple[Float[Tensor, "batch 1 d"], Float[Tensor, "batch 1 out"]]:
    """The row that an online method reads at a step."""
    A, C = rows(owner, problem)
    if step >= A.shape[1]:
        raise ValueError(f"{owner}: reads one row a step and has read all {A.shape[1]}; ask for fewer steps")
    return A[:, step : step + 1], C[:, step : step + 1]
