import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import BlockLayout, unroll
from interp.unrolling.circuits import Group
from interp.unrolling.rule import WordFeatures
from interp.unrolling.words import CHUNK, alphabet, project, reproject, share_of, weight_fit
from tests.builders import eagle_model, random_model

LAYOUTS = {
    "two blocks": BlockLayout.standard(x=3, y=2),
    "scalar label": BlockLayout.standard(x=3, y=1),
    "constant": BlockLayout.standard(x=3, y=2, constant=1),
}


def dense(word: object, layout: BlockLayout) -> torch.Tensor:
    """The word's tensor T[a, b, c, j], read off its action on unit rows and unit moments."""
    size = layout.d_model
    T = torch.zeros(size, size, size, size, dtype=torch.float64)
    for b, c in itertools.product(range(size), repeat=2):
        S = torch.zeros(1, 1, size, size, dtype=torch.float64)
        S[..., b, c] += 0.5
        S[..., c, b] += 0.5
        value = WordFeatures(torch.eye(size, dtype=torch.float64)[None], S, layout)[word]
        T[:, b, c, layout.slices[word.into]] = value[0]
    return T


def random_group(size: int, heads: int, seed: int) -> Group:
    generator = torch.Generator().manual_seed(seed)
    Q, V = (torch.randn(heads, size, size, generator=generator, dtype=torch.float64) for _ in range(2))
    return Group(("context", "query"), "context", Q, V)


def test_the_eight_words():
    assert [str(word) for word in alphabet(LAYOUTS["two blocks"])] == [
        "z_x S_xx → x", "z_y S_yx → x", "tr(S_xx) z_x → x", "tr(S_yy) z_x → x",
        "z_x S_xy → y", "z_y S_yy → y", "tr(S_xx) z_y → y", "tr(S_yy) z_y → y",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_words_are_all_invariant_tensors(name: str):
    """The null space of (generators of the rotations, reflections − 1) on tensors symmetric in (b, c) has that size."""
    layout = LAYOUTS[name]
    size, eye = layout.d_model, torch.eye(layout.d_model, dtype=torch.float64)
    symmetric = [(b, c) for b in range(size) for c in range(b, size)]
    tensors = torch.zeros(size * len(symmetric) * size, size, size, size, size, dtype=torch.float64)
    for number, (a, (b, c), j) in enumerate(itertools.product(range(size), symmetric, range(size))):
        tensors[number, a, b, c, j] = tensors[number, a, c, b, j] = 1
    constraints = []
    for block, at in layout.slices.items():
        if block != "constant":
            flip = eye.clone()
            flip[at.start, at.start] = -1
            constraints.append(torch.einsum("tabcj,pa,qb,rc,sj->tpqrs", tensors, flip, flip, flip, flip) - tensors)
        for i, k in itertools.combinations(range(at.start, at.stop), 2):
            turn = torch.zeros_like(eye)
            turn[i, k], turn[k, i] = 1, -1
            moved = [
                torch.einsum(f"tabcj,{new}{old}->t{'abcj'.replace(old, new)}", tensors, turn)
                for old, new in zip("abcj", "pqrs", strict=True)
            ]
            constraints.append(sum(moved))
    matrix = torch.cat([constraint.flatten(1) for constraint in constraints], dim=1)
    assert len(tensors) - torch.linalg.matrix_rank(matrix, tol=1e-9) == len(alphabet(layout))


@pytest.mark.parametrize("name", LAYOUTS)
def test_projection_is_dense_least_squares(name: str):
    layout = LAYOUTS[name]
    words, group = alphabet(layout), random_group(layout.d_model, 2, seed=4)
    basis = torch.stack([dense(word, layout).flatten() for word in words], dim=1)
    T = group.tensor().flatten()
    expected = torch.linalg.lstsq(basis, T[:, None]).solution[:, 0]
    coefficients = project(group, words, layout)
    assert torch.allclose(coefficients, expected, atol=1e-12)
    fit = weight_fit(group, words, coefficients, layout, list(layout.columns))
    assert fit.norm == pytest.approx(T.norm().item(), rel=1e-12)
    assert fit.residual == pytest.approx((T - basis @ expected).norm().item(), rel=1e-12)


def test_reprojection_on_a_subset_is_least_squares_on_it():
    layout = LAYOUTS["two blocks"]
    words, group = alphabet(layout), random_group(5, 1, seed=1)
    full = project(group, words, layout)
    kept = words[1::2]
    again = reproject(dict(zip(words, full.tolist(), strict=True)), kept, layout.widths)
    assert torch.allclose(
        torch.tensor(list(again.values()), dtype=torch.float64), project(group, kept, layout), atol=1e-12
    )
    fit = weight_fit(group, words, full, layout, list(layout.columns))
    direct = weight_fit(group, kept, project(group, kept, layout), layout, list(layout.columns))
    share = share_of(dict(zip(words, full.tolist(), strict=True)), fit, kept, layout.widths)
    assert share == pytest.approx(direct.explained, abs=1e-12)


@given(seed=st.integers(0, 1000), coefficients=st.lists(st.floats(-3, 3), min_size=8, max_size=8))
@settings(max_examples=30, deadline=None)
def test_planted_words_come_back_and_commute_with_rotations(seed: int, coefficients: list[float]):
    layout, generator = LAYOUTS["two blocks"], torch.Generator().manual_seed(seed)
    words = alphabet(layout)
    z = torch.randn(1, 6, 5, generator=generator, dtype=torch.float64)
    turns = [torch.linalg.qr(torch.randn(w, w, generator=generator, dtype=torch.float64))[0] for w in (3, 2)]
    turn = torch.block_diag(*turns)

    def update(rows: torch.Tensor) -> torch.Tensor:
        out, features = torch.zeros_like(rows), WordFeatures(rows, (rows.mT @ rows)[:, None], layout)
        for word, coefficient in zip(words, coefficients, strict=True):
            out[..., layout.slices[word.into]] += coefficient * features[word]
        return out

    assert torch.allclose(update(z @ turn), update(z) @ turn, atol=1e-9)


def test_weight_fit_in_slabs_is_the_whole(monkeypatch: pytest.MonkeyPatch):
    layout = LAYOUTS["constant"]
    words, group = alphabet(layout), random_group(layout.d_model, 2, seed=9)
    coefficients = project(group, words, layout)
    whole = weight_fit(group, words, coefficients, layout, ["x", "y"])
    assert layout.d_model**4 < CHUNK
    monkeypatch.setattr("interp.unrolling.words.CHUNK", layout.d_model**3)
    slabs = weight_fit(group, words, coefficients, layout, ["x", "y"])
    assert (slabs.norm, slabs.residual) == pytest.approx((whole.norm, whole.residual), rel=1e-12)


def test_weight_fit_of_wide_layouts_needs_no_tensor(monkeypatch: pytest.MonkeyPatch):
    layout = LAYOUTS["constant"]
    words, group = alphabet(layout), random_group(layout.d_model, 2, seed=9)
    coefficients = project(group, words, layout)
    dense = weight_fit(group, words, coefficients, layout, ["x", "y", "constant"])
    monkeypatch.setattr("interp.unrolling.words.DENSE_WIDTH", 1)
    products = weight_fit(group, words, coefficients, layout, ["x", "y", "constant"])
    assert (products.norm, products.residual) == pytest.approx((dense.norm, dense.residual), rel=1e-9)


def test_one_coefficient_moves_alone():
    layout = BlockLayout.standard(x=4, y=2, n_query=2, sign=-1)
    plain = eagle_model([-1.0, -1.1, -1.2], [0.9, 1.0, 1.1], layout, noise=0.01)
    moved = eagle_model([-1.0, -1.1, -1.2], [0.9, 1.0, 1.1], layout, noise=0.01)
    with_y = layout.columns["y"] @ layout.columns["y"].T
    with torch.no_grad():
        moved.blocks[1].attn.W_O += 0.1 * moved.blocks[1].attn.W_O @ with_y
    before, after = unroll(plain), unroll(moved)
    for index, (first, second) in enumerate(zip(before.layers, after.layers, strict=True)):
        for word, value in first.labelled("words").items():
            expected = 1.1 * value if index == 1 and word.endswith("y") else value
            assert second.labelled("words")[word] == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_random_weights_are_not_explained():
    rule = unroll(random_model(6, 3, 2, 2, seed=0))
    assert max(layer.weights_explained for layer in rule.layers) < 0.1


def test_blocks_that_rotate_together_have_more_words():
    apart = BlockLayout.standard(x=3, y=2, velocity=2)
    together = BlockLayout.standard(x=3, y=2, velocity=2, symmetry={"velocity": "y"})
    assert len(alphabet(together)) > len(alphabet(apart))
    assert "z_x S_xy → velocity" in {str(word) for word in alphabet(together)}
