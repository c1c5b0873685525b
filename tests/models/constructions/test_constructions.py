"""Each construction computes its algorithm, to rounding; settings outside a family are refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.layout import BlockLayout
from models.constructions import (
    CONSTRUCTIONS,
    T3,
    THEORY,
    VARIANTS,
    Construction,
    PromptShape,
    alternating_gradient_descent,
    averaging,
    chebyshev_nodes,
    distributed_eagle,
    eagle,
    embed,
    functional_gradient_descent,
    gd_plus_plus,
    gradient_descent,
    heavy_ball,
    one_head_a_machine,
    preconditioned_gradient_descent,
    rank_limited_eagle,
    ridge_gradient_descent,
    scheduled_eagle,
    scheduled_gradient_descent,
)
from models.constructions.draws import Chance, distance_to_nodes, schedule
from models.prompts import LogUniformSpectrum
from models.prompts.value import Prompts
from tests.models.constructions.references import REFERENCES

DRAWS = CONSTRUCTIONS | VARIANTS
SHAPE = PromptShape(d=3, d_out=2, n_query=2, n=8)


def prompts_for(d: int, d_out: int, n: int, n_query: int, seed: int = 0) -> Prompts:
    kappa = 5.0 if min(n, d) > 1 else 1.0
    return LogUniformSpectrum(n=n, d=d, n_query=n_query, d_out=d_out, kappa=kappa).sample(3, seed=seed)


def expected(name: str, construction: Construction, prompts: Prompts, layers: int) -> torch.Tensor:
    return REFERENCES[name](construction.settings, prompts.A, prompts.B, prompts.C, layers)


@pytest.mark.parametrize("name", DRAWS)
@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 5),
    d_out=st.integers(1, 3),
    n=st.integers(2, 10),
    layers=st.integers(1, 5),
    n_query=st.integers(1, 2),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_forward_is_the_algorithm(name, seed, d, d_out, n, layers, n_query):
    construction = DRAWS[name](seed, d, d_out, n, layers, n_query)
    prompts = prompts_for(d, d_out, n, n_query, seed)
    found = construction.predict(prompts)
    assert found.shape == (3, n_query, d_out) and found.dtype == torch.float64
    torch.testing.assert_close(found, expected(name, construction, prompts, layers), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", DRAWS)
def test_a_seed_is_one_member_and_another_seed_another(name):
    first, again, other = (DRAWS[name](seed, 4, 2, 12, 3) for seed in (5, 5, 6))
    assert first.settings == again.settings != other.settings
    assert torch.equal(first.model.W_V, again.model.W_V)
    assert first.family == name.partition(",")[0]


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_members_contract_or_stay_bounded_on_their_domain(name):
    """‖A‖ ≤ 1 is in the domain: the answer is not many times the target."""
    for seed in range(20):
        prompts = prompts_for(4, 2, 12, 1, seed)
        assert DRAWS[name](seed, 4, 2, 12, 4).predict(prompts).abs().max() < 20 * prompts.C.abs().max()


def test_scale_n_holds_at_every_n_and_a_stated_n_only_there():
    scaled = heavy_ball(PromptShape(3, 2, 2, scale="n"), 2.0, 0.5, 3)
    for n in (4, 9):
        prompts = prompts_for(3, 2, n, 2)
        torch.testing.assert_close(scaled.predict(prompts), expected("heavy ball", scaled, prompts, 3))
    stated = heavy_ball(PromptShape(3, 2, 2, n=4), 0.5, 0.5, 3)
    prompts = prompts_for(3, 2, 9, 2)
    assert (stated.predict(prompts) - expected("heavy ball", stated, prompts, 3)).abs().max() > 1e-3
    assert stated.settings["n"] == 4 and "n" not in scaled.settings


def test_named_eagles_have_the_norms_of_the_literature():
    theory, chebyshev = eagle(SHAPE, *THEORY, layers=4, norm=1.5), eagle(SHAPE, *T3, layers=4)
    assert theory.settings["norms"] == pytest.approx([1.5 * (2 / 3) ** layer for layer in range(4)])
    steps = [-block.attn.W_V[0, -1, -1].item() for block in chebyshev.model.blocks]
    assert steps == pytest.approx([4 / 3 * 9**layer for layer in range(4)])


def test_t3_leaves_a_chebyshev_polynomial():
    """r_L = ± T_{3^L}(σ)/(3^L σ), so the largest error over σ in [0, 1] is 3^-L."""
    layers, sigma = 3, torch.linspace(0.05, 1, 12, dtype=torch.float64)
    tokens = torch.stack([sigma, sigma], dim=1)[:, None].repeat(1, 2, 1)
    tokens[:, 1, 1] = 0
    prompts = Prompts(tokens, sigma[:, None, None])
    error = prompts.target - eagle(PromptShape(1), *T3, layers=layers).predict(prompts)
    polynomial = torch.cos(3**layers * sigma.acos()) / 3**layers
    torch.testing.assert_close(error.flatten().abs(), polynomial.abs(), rtol=1e-9, atol=1e-12)


def test_shrinking_all_rows_without_labels_is_not_ridge_descent():
    """What the ridge docstring says of the same words without label columns."""
    construction = ridge_gradient_descent(SHAPE, 0.5, 0.4, 4)
    prompts = prompts_for(3, 2, 8, 2)
    G, a = prompts.A.mT @ prompts.A, 1 - 0.5 * 0.4
    g, frame = torch.linalg.eigh(G)
    shrunk = frame @ torch.diag_embed((a**4 - (a - 0.5 * g) ** 4) / g) @ frame.mT
    without = prompts.B @ shrunk @ prompts.A.mT @ prompts.C
    tokens = construction.tokens(prompts)
    tokens[..., construction.model.layout.slices["label"]] = 0
    torch.testing.assert_close(construction.model.predict(tokens), without)
    assert (construction.predict(prompts) - without).abs().max() > 1e-3


def test_alternating_tokens_are_twice_the_rows():
    construction = alternating_gradient_descent(SHAPE, [0.5, 0.5])
    prompts = prompts_for(3, 2, 8, 2)
    tokens = construction.tokens(prompts)
    assert tokens.shape == (3, 2 * 8 + 2, 3 + 2 + 3 + 8 + 8)
    assert torch.equal(tokens[:, 0:16:2, :3], prompts.A) and torch.equal(tokens[:, 1:16:2, 3:5], prompts.C)
    assert construction.family == "gradient descent"
    assert alternating_gradient_descent(SHAPE, [0.5, 0.6]).family == "scheduled GD"
    assert construction.model.cfg.n_layers == 3


def test_the_heads_of_machines_send_their_second_moments():
    """What head k holds at the queries before W_O is B [A_kᵀA_k, A_kᵀC_k]."""
    construction = one_head_a_machine(SHAPE, 4, [-0.5, -0.4], [0.9, 1.1])
    prompts = prompts_for(3, 2, 8, 2)
    _, cache = construction.model.run_with_cache(construction.tokens(prompts))
    for k, (A, C) in enumerate(zip(prompts.A.chunk(4, 1), prompts.C.chunk(4, 1), strict=True)):
        message = prompts.B @ A.mT @ torch.cat([A, C], dim=-1)
        torch.testing.assert_close(cache["blocks.0.attn.hook_z"][:, -2:, k], message, rtol=1e-12, atol=1e-12)


def test_heads_of_projections_that_add_up_are_eagle_and_one_alone_is_not():
    names = ("scheduled EAGLE, complementary heads", "rank-limited EAGLE, one head")
    whole, alone = (VARIANTS[name](3, 4, 2, 12, 3) for name in names)
    assert (whole.family, alone.family) == ("scheduled EAGLE", "rank-limited EAGLE")
    assert [len(heads) for heads in whole.settings["frames"]] == [2] * 3
    assert torch.linalg.matrix_rank(alone.model.QK.AB).flatten().tolist() == [2] * 3


def test_schedules_keep_away_from_smaller_families():
    assert distance_to_nodes(chebyshev_nodes(SHAPE, (0.1, 1.0), 4, [2, 0, 3, 1]).settings["gamma"]) < 1e-12
    for seed in range(30):
        gamma = schedule(Chance(seed), 1.0, 3)
        assert max(gamma) > 1.3 * min(gamma) and distance_to_nodes(gamma) > 0.1


REFUSED = {
    "gradient descent": (lambda: gradient_descent(SHAPE, 0.0, 2), "gamma must be positive"),
    "scheduled": (lambda: scheduled_gradient_descent(SHAPE, [0.5, -0.5]), "gamma must be positive"),
    "no layers": (lambda: gradient_descent(SHAPE, 0.5, 0), "at least one layer"),
    "empty schedule": (lambda: scheduled_gradient_descent(SHAPE, []), "gamma must be positive"),
    "interval": (lambda: chebyshev_nodes(SHAPE, (1.0, 0.5), 2), "a < b"),
    "order": (lambda: chebyshev_nodes(SHAPE, (0.5, 1.0), 2, [0, 0]), "permutation"),
    "indefinite": (
        lambda: preconditioned_gradient_descent(SHAPE, [torch.diag(torch.tensor([1.0, 1, -1]).double())]),
        "positive definite",
    ),
    "gd++": (lambda: gd_plus_plus(SHAPE, 0.5, 0.5, 2), "eta must be negative"),
    "eagle": (lambda: eagle(SHAPE, -0.5, 0.5, 2, norm=0.0), "norm must be positive"),
    "scheduled eagle": (lambda: scheduled_eagle(SHAPE, [-0.5, 0.1], [0.5, 0.5]), "eta must be negative"),
    "distributed": (
        lambda: distributed_eagle(SHAPE, 2, [-0.5], [0.5], [0.5], [0.5]),
        "query_eta must be negative",
    ),
    "one head a machine": (lambda: one_head_a_machine(SHAPE, 2, [0.5], [0.5]), "eta must be negative"),
    "no machine": (lambda: one_head_a_machine(SHAPE, 0, [-0.5], [0.5]), "machines=0 must be at least 1"),
    "frame shape": (
        lambda: rank_limited_eagle(SHAPE, [-0.5], [0.5], [[torch.eye(4, dtype=torch.float64)]]),
        r"a frame must be \[3, r\]",
    ),
    "frame": (
        lambda: rank_limited_eagle(SHAPE, [-0.5], [0.5], [[2 * torch.eye(3, dtype=torch.float64)]]),
        "not orthonormal",
    ),
    "heavy ball": (lambda: heavy_ball(SHAPE, 0.5, math.inf, 2), "beta must be positive"),
    "no n": (lambda: heavy_ball(PromptShape(3), 0.5, 0.5, 2), "state n"),
    "ridge": (lambda: ridge_gradient_descent(SHAPE, 0.5, 0.0, 2), "penalty must be positive"),
    "averaging": (lambda: averaging(SHAPE, [0.5, 0.5]), "fraction of the mean"),
    "similarity": (lambda: functional_gradient_descent(SHAPE, "learned", [0.5]), "takes one of"),
    "kernel scale": (
        lambda: functional_gradient_descent(PromptShape(3, scale="n"), "exp", [0.5]),
        "the scale 'none'",
    ),
    "alternating": (lambda: alternating_gradient_descent(PromptShape(3), [0.5]), "number of pairs"),
    "one row": (lambda: CONSTRUCTIONS["distributed EAGLE"](0, 3, n=1), "two context rows"),
    "block": (lambda: embed(prompts_for(3, 2, 8, 2), BlockLayout.standard(x=3, y=2, z=1)), "the block 'z'"),
    "width": (lambda: embed(prompts_for(3, 2, 8, 2), SHAPE.layout({"constant": 2})), "the layout asks for"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_outside_the_family_are_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()
