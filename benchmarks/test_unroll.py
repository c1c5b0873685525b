"""Unroll and certify: growth in depth and width, beside one forward pass of the model on the same prompts."""

import time

import pytest

from interp import certify, unroll
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model

CASES = [*((layers, 10) for layers in (4, 8, 16, 32)), *((4, d) for d in (20, 40))]


@pytest.mark.parametrize(("layers", "d"), CASES)
def test_unroll_and_certify(benchmark, layers: int, d: int):
    family = LogUniformSpectrum(n=d, d=d, n_query=5, d_out=5, kappa=10)
    step = [0.5] * layers
    model = eagle_model([-value for value in step], step, family.layout(sign=-1), noise=1e-3)
    fitting, fresh = family.sample(512, seed=0), family.sample(1024, seed=1)
    model.predict(fresh.tokens)
    start = time.perf_counter()
    model.predict(fresh.tokens)
    forward = time.perf_counter() - start
    benchmark(lambda: certify(unroll(model, prompts=fitting), model, fresh))
    seconds = benchmark.stats["median"]
    benchmark.extra_info |= {"layers": layers, "d": d, "ratio_to_one_forward_pass": seconds / forward}
    print(f"\nL={layers} d={d}: {seconds:.3f} s, {seconds / forward:.0f} × one forward pass")
