"""What a computation costs: floating-point operations by torch's counter, and time taken in turns."""

import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode


@torch.no_grad()
def count_flops(function: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@torch.no_grad()
def alternating(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> Float[Tensor, "function round"]:
    """Seconds of two functions, warm, run in turns so that a busy machine slows both; who leads alternates."""
    for function in (first, second) * 2:
        _seconds(function)
    times = torch.empty(2, rounds, dtype=torch.float64)
    for number in range(rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            times[which, number] = _seconds((first, second)[which])
    return times


def _seconds(function: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    function()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
