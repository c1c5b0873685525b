"""The EAGLE form of rules whose form is known, and of rules that have none."""

import pytest
import torch

from analyses.claims.eagle_form import block_form, eagle_form, layer_fidelity
from interp import unroll
from interp.layout import BlockLayout
from models.constructions.construction import PromptShape
from models.constructions.distributed import distributed_eagle, one_head_a_machine
from models.constructions.rank_limited import rank_limited_eagle
from tests.builders import eagle_model, linear_model, random_model, random_tokens

ETA, GAMMA = [-0.3, -0.8, -1.1], [0.5, 0.9, 1.2]
SHAPE = PromptShape(d=4, d_out=2, n_query=2)


def frame(d: int, rank: int, seed: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, rank, generator=torch.Generator().manual_seed(seed)).double()).Q


def keeps(model, rows: int = 8):
    rule = unroll(model)
    form, heads = eagle_form(rule)
    return heads, layer_fidelity(rule, form, random_tokens(model, 20, rows, seed=1))


def test_two_words_are_found_and_nothing_is_lost():
    heads, layers = keeps(eagle_model(ETA, GAMMA, BlockLayout.standard(x=4, y=2, n_query=2, sign=-1)))
    assert [head[0].eta for head in heads[:2]] == pytest.approx(ETA[:2], rel=1e-6)
    assert [head[0].gamma for head in heads] == pytest.approx(GAMMA, rel=1e-6)
    assert all(head[0].rank == 4 and head[0].outside == 0 for head in heads)
    assert all(layer.explained == pytest.approx(1, abs=1e-12) and layer.fidelity < 1e-25 for layer in layers)


def test_a_projection_in_the_place_of_the_identity():
    frames = [[frame(4, 2, seed)] for seed in range(3)]
    model = rank_limited_eagle(SHAPE, ETA, GAMMA, frames).model
    heads, layers = keeps(model)
    for head, eta, gamma in zip(heads, ETA, GAMMA, strict=True):
        assert head[0].rank == 2 and head[0].gamma == pytest.approx(gamma, rel=1e-10)
        assert (head[0].eta, head[0].outside) == pytest.approx((eta, eta), rel=1e-10)
    assert min(layer.explained for layer in layers) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("build", ["roles", "machines"])
def test_distributed_rules_have_one_form_a_group(build):
    if build == "roles":
        built = distributed_eagle(SHAPE, 2, ETA, GAMMA, [-0.1, -0.2, -0.3], [0.1, 0.2, 0.3])
    else:
        built = one_head_a_machine(SHAPE, 2, ETA, GAMMA)
    heads, layers = keeps(built.model)
    assert min(layer.explained for layer in layers) == pytest.approx(1, abs=1e-12)
    assert heads[0][0].eta == pytest.approx(ETA[0], rel=1e-10) and len(heads[0]) == 2


def test_the_norm_is_the_largest_of_a_machine():
    model = one_head_a_machine(SHAPE, 2, ETA, GAMMA).model
    tokens = random_tokens(model, 5, 6, seed=3)
    rule = unroll(model)
    found = layer_fidelity(rule, eagle_form(rule)[0], tokens)[0].norm
    by_hand = max(
        torch.linalg.svdvals(prompt[rows, :4])[0].item() for prompt in tokens for rows in (slice(3), slice(3, 6))
    )
    assert found == pytest.approx(by_hand, rel=1e-12)


def test_a_rule_of_another_form_is_not_explained():
    _, layers = keeps(random_model(4, 2, layers=2, heads=1, seed=0))
    assert max(layer.explained for layer in layers) < 0.9


def test_the_block_form_keeps_x_blocks_that_are_no_projections():
    """Q = diag(M, 0), V = diag(N, −γ I) with any M and N: the block form loses nothing, the EAGLE form does."""
    generator = torch.Generator().manual_seed(4)
    Q, V = torch.zeros(2, 1, 1, 6, 6, dtype=torch.float64)
    for matrix in (Q, V):
        matrix[..., :4, :4] = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    V[..., 4:, 4:] = -0.7 * torch.eye(2)
    model = linear_model(Q, V, BlockLayout.standard(x=4, y=2, n_query=2, sign=-1))
    rule, tokens = unroll(model), random_tokens(model, 10, 8, seed=1)
    (blocks,), (words,) = (layer_fidelity(rule, form, tokens) for form in (block_form(rule), eagle_form(rule)[0]))
    assert blocks.explained == pytest.approx(1, abs=1e-12) and words.explained < 0.9
    assert blocks.fidelity <= blocks.central_fidelity < 1e-20
