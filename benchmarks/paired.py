"""Ratios of two timings, taken in turns so that a busy machine slows both."""

import ctypes
import statistics
import time
from collections.abc import Callable


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: page faults of returned memory hit one side or the other at random."""
    try:
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(trim_threshold, 2**30)
        libc.mallopt(mmap_threshold, 2**30)
    except (AttributeError, OSError):
        pass  # another C library: the ratios are noisier


def paired_ratio(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """Median over the rounds of time of `first` / time of `second`, warm, the order alternating."""
    for function in (first, second) * 2:
        function()
    return statistics.median(_one_round(first, second, number % 2 == 0) for number in range(rounds))


def _one_round(first: Callable[[], object], second: Callable[[], object], first_leads: bool) -> float:
    if first_leads:
        return seconds(first) / seconds(second)
    denominator = seconds(second)
    return seconds(first) / denominator


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
