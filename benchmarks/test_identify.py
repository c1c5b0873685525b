"""One identification at d = 10, L = 4, beside the unrolling that it starts with."""

import time

from interp import identify, unroll
from models import zoo


def test_identify(benchmark):
    model, prompts = zoo.load("eagle-d10"), zoo.prompts("eagle-d10", 256, seed=0)
    unroll(model)
    start = time.perf_counter()
    unroll(model)
    unrolling = time.perf_counter() - start
    benchmark(lambda: identify(model, prompts))
    seconds = benchmark.stats["median"]
    benchmark.extra_info["ratio_to_unrolling"] = seconds / unrolling
    print(f"\nidentify: {seconds:.3f} s, {seconds / unrolling:.0f} × one unrolling without prompts")
