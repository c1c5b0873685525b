import json

import pytest
import torch
from torch import Tensor

from interp import BlockLayout, unroll
from interp.layout import Visibility
from interp.unrolling import Projections, UpdateRule, projections
from interp.unrolling.pictures import pictures
from interp.unrolling.projections import is_rank_limited
from interp.unrolling.render import parse_text
from models.constructions import CONSTRUCTIONS, VARIANTS, PromptShape, rank_limited_eagle
from models.constructions.disguises import DISGUISES
from models.constructions.weights import from_heads, place
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model

D, RANK = 8, 3
LAYOUT = BlockLayout.standard(x=D, y=2, n_query=2, sign=-1)
FRAME = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
EYE = torch.eye(D, dtype=torch.float64)
FAMILY = LogUniformSpectrum(n=12, d=D, n_query=2, d_out=2, kappa=5.0)
COMPLEMENTARY = VARIANTS["scheduled EAGLE, complementary heads"](4, D, 2, 12, 3, 2)
ALONE = VARIANTS["rank-limited EAGLE, one head"](4, D, 2, 12, 3, 2)


def quick(rule: UpdateRule) -> Projections:
    """With too few draws to test for sketches."""
    return projections(rule, draws=8)


def span(*columns: int) -> Tensor:
    """The projection on some columns of a random frame."""
    return FRAME[:, list(columns)] @ FRAME[:, list(columns)].T


def rule_of(*layers: list[tuple[Tensor, Tensor]]) -> UpdateRule:
    """Heads by Q_xx and V_xx, V_yy = −0.7 I; one more layer of EAGLE, so that all x columns are live."""
    most, nothing = max(map(len, layers)), (place(LAYOUT, {}),) * 2
    heads = [
        [(place(LAYOUT, {("x", "x"): Q}), place(LAYOUT, {("x", "x"): V, ("y", "y"): -0.7})) for Q, V in layer]
        for layer in (*layers, [(EYE, EYE)])
    ]
    return unroll(from_heads([layer + [nothing] * (most - len(layer)) for layer in heads], LAYOUT))


def holds(found: Projections) -> dict[str, bool]:
    return {picture.name: picture.holds for picture in pictures(found)}


PROJECTION, LEVELS, EQUAL, SKETCH, WHOLE = (
    "Q is a multiple of a projection P",
    "V = b₁P + b₂(I − P)",
    "Q and V are equal up to sign and size",
    "Q is not told from a random sketch S Sᵀ",
    "heads of a layer are complementary: Σ vP = cI",
)


def test_levels_and_multiples_are_recovered():
    P = span(0, 1, 2)
    found = quick(rule_of([(2.5 * P, -0.4 * P + 0.1 * (EYE - P))])).groups[0].own[0]
    assert found.qk.rank == RANK and found.qk.residual < 1e-12
    assert torch.allclose(found.qk.P, P, atol=1e-10)
    assert found.qk.c == pytest.approx(1.0)  # Q is scaled to unit size, V by the inverse
    assert found.levels == pytest.approx((2.5 * -0.4, 2.5 * 0.1), abs=1e-10)
    assert found.levels_residual is not None and found.levels_residual < 1e-10
    assert found.into_y == pytest.approx((2.5 * -0.7, 0.0), abs=1e-10)
    assert found.elsewhere == pytest.approx((0.0, 0.0), abs=1e-7)


def test_q_and_v_alike_up_to_sign():
    P = span(0, 1, 2)
    alike, apart = (quick(rule_of([(P, V)])).groups[0].own[0] for V in (-3.0 * P, EYE))
    assert alike.difference == pytest.approx(0.0, abs=1e-12) and alike.vp is not None and alike.vp.rank == RANK
    cosine = RANK**0.5 / D**0.5  # of P and I as vectors
    assert apart.difference == pytest.approx((2 - 2 * cosine) ** 0.5)


def test_where_v_reads_and_writes():
    """A V that carries P to other directions reads in P and writes elsewhere; no b₁, b₂ describe it."""
    carrier = -0.5 * FRAME[:, :3] @ FRAME[:, 2:5].T
    found = quick(rule_of([(span(0, 1, 2), carrier)]))
    head = found.groups[0].own[0]
    assert head.in_P == pytest.approx((1.0, 1 / 3)) and head.levels_residual is not None and head.levels_residual > 0.9
    assert "V_xx reads, writes in P (share): 0.0 1.00, 0.33" in str(found)
    assert quick(rule_of([(span(0, 1, 2), span(0, 1, 2))])).groups[0].own[0].in_P == pytest.approx((1.0, 1.0))


def test_overlaps_are_shares_of_common_directions():
    found = quick(rule_of([(span(0, 1, 2), EYE), (span(1, 2, 3, 4), EYE)], [(span(0, 1, 2), EYE)]))
    shares = {(overlap.first, overlap.second): overlap.share for overlap in found.overlaps}
    assert shares[(0, 0), (0, 1)] == pytest.approx(2 / 3) and shares[(0, 0), (1, 0)] == pytest.approx(1.0)
    assert shares[(0, 1), (1, 0)] == pytest.approx(2 / 3) and shares[(1, 0), (2, 0)] == pytest.approx(1.0)
    assert ((0, 0), (2, 0)) not in shares  # two layers on
    angles = next(overlap.angles for overlap in found.overlaps if overlap.second == (0, 1))
    assert angles == pytest.approx((0.0, 90.0), abs=1e-5)


def test_complementary_heads_are_said_by_words_and_one_alone_is_not():
    whole, alone = (
        unroll(construction.model, prompts=construction.tokens(FAMILY.sample(64, seed=0)))
        for construction in (COMPLEMENTARY, ALONE)
    )
    sums = projections(whole)
    assert holds(sums) == {PROJECTION: True, LEVELS: True, EQUAL: False, SKETCH: True, WHOLE: True}
    for group, eta, gamma in zip(
        sums.groups, COMPLEMENTARY.settings["eta"], COMPLEMENTARY.settings["gamma"], strict=True
    ):
        assert [head.qk.rank for head in group.own] == [4, 4] and [head.qk.rank for head in group.canonical] == [D]
        assert group.explained == pytest.approx(1.0) and group.function_explained == pytest.approx(1.0)
        assert group.sums["y"] == pytest.approx((-gamma, 0.0), abs=1e-9)
        assert group.layer == 2 or group.sums["x"] == pytest.approx((eta, 0.0), abs=1e-9)
        assert all(head.explained == pytest.approx(0.5) for head in group.own)
    single = projections(alone)
    assert [group.explained for group in single.groups] == pytest.approx([0.5] * 3)
    assert all(group.sums["y"][1] == pytest.approx(0.5**0.5) for group in single.groups)
    assert WHOLE not in holds(single) and "no words: see its blocks" in str(single)
    assert "Q_xx = 1·projection of rank 4" in str(alone) and "NOT REACHED" in str(alone)


def test_heads_that_are_not_complementary():
    found = quick(rule_of([(span(0, 1, 2), EYE), (span(2, 3, 4, 5, 6, 7), EYE)]))
    assert not holds(found)[WHOLE]
    assert found.groups[0].sums["y"][1] > 0.2


NO_SKETCHES = {
    "coordinates": (torch.diag(torch.tensor([1.0] * 3 + [0] * 5, dtype=torch.float64)), True),
    "diagonal": (torch.diag(torch.tensor([1.0, 0.6, 0.2] + [0] * 5, dtype=torch.float64)), False),
    "graded": (FRAME[:, :3] @ torch.diag(torch.tensor([1.0, 0.6, 0.2], dtype=torch.float64)) @ FRAME[:, :3].T, False),
    "oblique": (FRAME[:, :3] @ (FRAME[:, :3] + FRAME[:, 3:6]).T, False),
}


@pytest.mark.parametrize("name", NO_SKETCHES)
def test_what_is_no_sketch_or_no_projection_is_rejected(name: str):
    Q, is_projection = NO_SKETCHES[name]
    described = projections(rule_of([(Q, EYE)]))
    first, found = described.groups[0].own[0], holds(described)
    assert first.qk.rank == 3 and (first.qk.residual < 1e-12) == is_projection
    assert found[PROJECTION] == is_projection and not found[SKETCH]


def test_a_last_layer_writes_no_inputs():
    last = quick(unroll(ALONE.model)).groups[-1]
    assert last.own[0].vp is None and last.own[0].levels is None and set(last.sums) == {"y"}


@pytest.mark.parametrize("name", ["query-key gauge", "value-output gauge", "rotation", "rescaled"])
def test_own_heads_do_not_see_a_gauge(name: str):
    plain, other = (quick(unroll(model)) for model in (COMPLEMENTARY.model, DISGUISES[name](COMPLEMENTARY.model, 1)))
    for first, second in zip(plain.own, other.own, strict=True):
        assert torch.allclose(first.qk.P, second.qk.P, atol=1e-8)
        assert first.levels is None or second.levels == pytest.approx(first.levels, rel=1e-8)
        assert first.number == second.number and second.explained == pytest.approx(first.explained, abs=1e-8)


def test_text_and_plain_values():
    rule = unroll(COMPLEMENTARY.model, prompts=COMPLEMENTARY.tokens(FAMILY.sample(16, seed=0)))
    text = str(rule)
    assert max(len(line) for line in text.splitlines()) <= 100
    for phrase in ("rank-limited heads", "layer 0 head 1", "layer 1 sum, part 0", "overlaps", "3 of 3 layers"):
        assert phrase in text
    assert len(parse_text(text)["core"]) == 3
    values = json.loads(json.dumps(rule.to_dict()))["projections"]
    assert values["rank_limited"] and len(values["groups"]) == 3 and values["pictures"][0]["holds"]
    assert values["groups"][0]["own"][0]["qk"]["rank"] == 4


def test_the_section_is_printed_only_for_heads_of_less_than_full_rank():
    full = unroll(eagle_model([-1.0, -1.0], [1.0, 1.0], LAYOUT, noise=0.05))
    assert not is_rank_limited(full) and "rank-limited" not in str(full) and full.to_dict()["projections"] is None
    assert not projections(full).rank_limited  # they can be asked for all the same
    momentum = CONSTRUCTIONS["heavy ball"](0, 3, 1, 6, 2).model  # most of whose heads read the velocity, not x
    assert not is_rank_limited(unroll(momentum))
    no_inputs = BlockLayout.standard(y=3, sign=-1)
    one_block = unroll(from_heads([[(torch.eye(3, dtype=torch.float64),) * 2]], no_inputs))
    assert not is_rank_limited(one_block)
    with pytest.raises(ValueError, match="no block of inputs"):
        projections(one_block)


def test_groups_say_whose_rows_they_are():
    shape = PromptShape(D, 2, 2)
    heads = [FRAME[:, :4], FRAME[:, 4:]]
    layout = shape.layout(machines=2, visibility=[Visibility("machine", "none"), Visibility("none", "context")])
    base = rank_limited_eagle(shape, [-0.4, -0.4], [0.8, 0.8], [heads, heads]).model
    rule = unroll(base, layout)
    labels = [(group.layer, group.label) for group in quick(rule).groups]
    assert labels == [(0, "context, S_own"), (0, "query, S"), (1, "query, S")]
    assert [group.own[0].number for group in quick(rule).groups] == [0, 1, 1]
    text = str(quick(rule))
    assert "  query, S:\n  layer 0 head 1 " in text and "0.0 with 0.1 0.00" in text and "0.1 with 1.1 1.00" in text
    assert max(len(line) for line in str(rule).splitlines()) <= 100


def test_a_head_in_two_groups_is_counted_once():
    visibility = Visibility("machine", "context")
    layout = PromptShape(D, 2, 2).layout(machines=2, visibility=visibility)
    base = rank_limited_eagle(PromptShape(D, 2, 2), [-0.4, -0.4], [0.8, 0.8], [[FRAME[:, :4]]] * 2).model
    found = quick(unroll(base, layout))
    assert [(group.layer, group.label) for group in found.groups][:2] == [(0, "context, S_own"), (0, "query, S")]
    assert len(found.own) == 2 and [(entry.first, entry.second) for entry in found.overlaps] == [((0, 0), (1, 0))]


def test_hundreds_of_heads_are_not_listed():
    traded = DISGUISES["traded"](VARIANTS["scheduled EAGLE, complementary heads"](4, 3, 2, 12, 2, 2).model, 0)
    found = projections(unroll(traded), draws=8)
    text = str(found)
    assert len(found.groups[0].own) > 8 and "layer 0 sum, part" in text
    assert "layer 0 head" not in text and "overlaps" not in text


def test_many_overlaps_are_summarised():
    heads = [(span(number), EYE) for number in range(6)]
    text = str(projections(rule_of(heads, heads), draws=8))
    assert "pairs from 0.00 to 1.00" in text and "layer 1 head 5" in text


def test_too_few_draws():
    with pytest.raises(ValueError, match="draws=3 must be at least 4"):
        projections(unroll(ALONE.model), draws=3)


def test_cells_never_touch():
    P = span(0, 1, 2)
    lines = str(quick(rule_of([(P, -0.000513 * P + 0.00555 * (EYE - P))]))).splitlines()
    row = next(line for line in lines if line.startswith("  layer 0 head 0"))
    assert len(row.removeprefix("  layer 0 head 0").replace("3, ", "").split()) == 8 and "-5.1e-04" in row
