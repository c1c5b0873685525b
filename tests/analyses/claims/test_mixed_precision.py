"""The claim mixed-precision at small sizes: rounding by hand, and which layers are rounded."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from analyses.claims import mixed_precision
from analyses.claims.cached_case import CachedCase
from analyses.claims.claim import Settings
from analyses.claims.criteria.consequences import CONSEQUENCES
from analyses.claims.mixed_precision import Rounded, round_layers, round_to, study, to_bf16
from tests.analyses.claims.processes import FAMILY, small_model

SETTINGS = Settings(seed=2)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_precision, "QUERIES", 3)


@pytest.mark.parametrize(("name", "most"), [("int4", 7), ("int8", 127)])
def test_integers_are_whole_numbers_of_the_scale_of_their_channel(name: str, most: int):
    weight = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[1, :, 2] = 0
    found = round_to(weight, name).numpy()
    for head in range(2):
        for channel in range(3):
            given = weight[head, :, channel].numpy()
            scale = np.abs(given).max() / most
            if scale == 0:
                assert (found[head, :, channel] == 0).all()
                continue
            levels = found[head, :, channel] / scale
            np.testing.assert_allclose(levels, np.rint(given / scale), atol=1e-9)
            assert np.abs(levels).max() == pytest.approx(most)


def test_bf16_keeps_eight_bits_of_the_mantissa():
    weight = torch.tensor([[1 + 2**-7, 1 + 2**-8, 1 + 3 * 2**-9, -3.0]], dtype=torch.float64)
    assert round_to(weight, "bf16").tolist() == [[1 + 2**-7, 1.0, 1 + 2**-7, -3.0]]


def test_only_the_matrices_of_the_layers_named_change():
    model = small_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rounded = round_layers(model, {1: "int4", 3: "int8"}).state_dict()
    changed = {name for name, tensor in rounded.items() if not torch.equal(tensor, before[name])}
    matrices = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out")
    assert changed == {f"blocks.{layer}.{name}" for layer in (1, 3) for name in matrices}
    assert torch.equal(rounded["blocks.1.mlp.W_in"], round_to(before["blocks.1.mlp.W_in"], "int4"))
    assert torch.equal(rounded["blocks.3.mlp.W_in"], round_to(before["blocks.3.mlp.W_in"], "int8"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_bf16_is_of_every_parameter_and_arithmetic_stays():
    rounded = to_bf16(small_model())
    assert rounded.dtype == torch.float64
    assert all(torch.equal(p, p.bfloat16().double()) for p in rounded.parameters())


def test_errors_are_those_of_whole_forward_passes_of_the_rounded_models():
    model = small_model(n_layers=3)
    found = study(model, FAMILY, 6, SETTINGS)
    assert list(found.rough) == list(combinations(range(3), 1))
    sample = CachedCase.fresh(replace(FAMILY, n_query=3), 6, SETTINGS, 1).prompts
    context, queries = sample.tokens[:, : FAMILY.n], sample.tokens[:, FAMILY.n :]
    models = {
        "exact": (model, found.exact),
        "bf16": (to_bf16(model), found.bf16),
        "rough": (round_layers(model, {0: "int8", 1: "int4", 2: "int8"}), found.rough[1,]),
    }
    for each, errors in models.values():
        with torch.no_grad():
            by_hand = [each.predict(torch.cat([context, query], dim=1)) for query in queries.split(1, dim=1)]
        expected = (torch.cat(by_hand, dim=1) - sample.target).square().mean((1, 2))
        torch.testing.assert_close(errors, expected, rtol=1e-9, atol=1e-12)
    order = np.argsort(found.alone["int4"])
    assert found.suggested == (order[0],)


def test_order_is_the_excess_over_that_of_the_median_choice():
    exact = torch.ones(50, dtype=torch.float64)
    rough = {(0,): exact + 0.1, (1,): exact + 0.4, (2,): exact + 0.8}
    found = Rounded(exact, exact, {"int4": [0.1, 0.4, 0.8]}, rough, (0,)).order("", 0)
    assert found.value == pytest.approx(0.25, rel=1e-12) and "rank 1 of all 3" in found.note


def test_every_criterion_is_measured_on_the_worse_seed():
    models = {seed: small_model(seed, n_layers=2) for seed in range(2)}
    findings = mixed_precision.measure(SETTINGS, models, FAMILY, prompts=8)
    assert set(findings.measurements) == set(CONSEQUENCES["mixed-precision"])
    ratios = [by["bf16"] / by["squared_error"] for by in findings.details.values()]
    assert findings.measurements["bf16"].value == pytest.approx(max(ratios), rel=1e-12)
    orders = []
    for by in findings.details.values():
        excess = by["excess_by_int4_layers"]
        orders.append(excess[", ".join(map(str, by["suggested"]))] / np.median(list(excess.values())))
    assert findings.measurements["order"].value == pytest.approx(max(orders), rel=1e-9)
