"""The interval of eigenvalues that Chebyshev's methods are made for."""

from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import Quadratic


def interval_of(
    owner: str, interval: tuple[float, float] | None, problem: Quadratic
) -> tuple[Float[Tensor, "batch 1 1"], Float[Tensor, "batch 1 1"]]:
    """The given [low, high], or each prompt's own.

    Raises:
        ValueError: not 0 < low ≤ high, or an eigenvalue above high: T_k grows fastest outside its interval.
    """
    smallest, largest = (value[:, None, None] for value in problem.spectrum)
    if interval is None:
        return smallest, largest
    low, high = interval
    if not 0 < low <= high:
        raise ValueError(f"{owner}: interval={interval} must be 0 < low ≤ high")
    reached = float(largest.max())
    if reached > high * (1 + 1e-6):
        raise ValueError(f"{owner}: interval={interval} diverges; its upper end must be at least λ_max = {reached:.6g}")
    return smallest.new_full(smallest.shape, low), smallest.new_full(smallest.shape, high)
