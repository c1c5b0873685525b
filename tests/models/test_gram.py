"""The Gram form against the token forward, and the training parameters against the model they amount to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.gram import GramState, LayerMatrices, Routing, layer_matrices, query_rows
from models.parametrisation import GramParameters, HeadSizes, balanced_factors
from models.transformer import HookedTransformer, TransformerConfig

CENTRAL = Routing.of(BlockLayout.standard(x=3, y=1), 2)


def random_model(layout: BlockLayout, n_layers=3, n_heads=2, d_head=3, **options) -> HookedTransformer:
    config = TransformerConfig(n_layers, n_heads, layout.d_model, d_head, init_std=0.3, seed=5, **options)
    return HookedTransformer(config, layout).double()


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("scale", ["none", "n", "sqrt_d_head"])
@given(n=st.integers(1, 8), n_query=st.integers(1, 3), n_heads=st.integers(1, 3), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=15)
def test_gram_form_is_the_token_forward(scale, n, n_query, n_heads, seed):
    layout = BlockLayout.standard(x=3, y=2, n_query=n_query, sign=-1.0)
    model = random_model(layout, n_heads=n_heads, kernel=AttentionKernel(scale=scale))
    tokens = draw(4, n + n_query, 5, seed=seed)
    rows = query_rows(GramState.of(tokens, n_query), layer_matrices(model, n), Routing.of(layout, n_heads))
    torch.testing.assert_close(layout.predict(rows), model.predict(tokens), rtol=1e-12, atol=1e-12)


DISTRIBUTED = {
    "a head for context rows, one for queries": [Visibility("machine", "none"), Visibility("none", "context")],
    "one head a machine": [Visibility(f"machine {k}", f"machine {k}") for k in range(3)],
    "shared and own heads": [Visibility("machine", "context"), Visibility("machine 1", "none")],
    "a machine that queries do not see": [Visibility("machine", "machine 0"), Visibility("none", "machine 2")],
}


@pytest.mark.parametrize("rules", DISTRIBUTED.values(), ids=DISTRIBUTED)
@given(rows=st.integers(1, 3), n_query=st.integers(1, 3), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=10)
def test_gram_form_is_the_token_forward_on_machines(rules, rows, n_query, seed):
    layout = BlockLayout.standard(x=3, y=2, n_query=n_query, machines=3, visibility=rules)
    model = random_model(layout, n_heads=len(rules))
    tokens = draw(4, 3 * rows + n_query, 5, seed=seed)
    state, routing = GramState.of(tokens, n_query, machines=3), Routing.of(layout, len(rules))
    predicted = layout.predict(query_rows(state, layer_matrices(model, 3 * rows), routing))
    torch.testing.assert_close(predicted, model.predict(tokens), rtol=1e-12, atol=1e-12)


def test_every_layer_agrees_with_the_update_written_out():
    """z_i ← z_i + Σ_h V_hᵀ S Q_hᵀ z_i, row by row (MATH §2)."""
    tokens = draw(1, 7, 4)
    layers = [LayerMatrices(draw(2, 4, 4, seed=1 + i) / 4, draw(2, 4, 4, seed=11 + i) / 4) for i in range(3)]
    state, rows = GramState.of(tokens, 2), tokens[0]
    for layer in layers:
        state = state.after(layer, CENTRAL)
        second_moment = sum(torch.outer(z, z) for z in rows[:5])
        rows = torch.stack(
            [z + sum(V.T @ second_moment @ Q.T @ z for Q, V in zip(layer.Q, layer.V, strict=True)) for z in rows]
        )
        torch.testing.assert_close(state.rows[0], rows[5:], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(state.gram[0, 0], rows[:5].T @ rows[:5], rtol=1e-12, atol=1e-12)


def test_a_transposed_matrix_is_noticed():
    layout = BlockLayout.standard(x=3, y=2, n_query=1)
    model, tokens = random_model(layout), draw(2, 6, 5)
    turned = [LayerMatrices(layer.Q.mT, layer.V) for layer in layer_matrices(model, 5)]
    gap = layout.predict(query_rows(GramState.of(tokens, 1), turned, CENTRAL)) - model.predict(tokens)
    assert gap.abs().max() > 1e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": AttentionKernel("exp", "sum")}, "this model has the kernel softmax"),
        ({"use_biases": True}, "without read-in, biases"),
        ({"normalization_type": "LN"}, "without read-in, biases, norms"),
    ],
)
def test_other_models_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        layer_matrices(random_model(BlockLayout.standard(x=3, y=2), **options), 5)


@pytest.mark.parametrize(
    ("rules", "machines"),
    [
        (Visibility("causal", "causal"), 1),
        (Visibility("context_and_self", "context_and_self"), 1),
        (Visibility("context", "context"), 2),
        (Visibility("all", "context"), 1),
    ],
)
def test_other_visibility_is_refused(rules, machines):
    layout = BlockLayout.standard(x=3, y=2, visibility=rules, machines=machines)
    with pytest.raises(ValueError, match="one matrix a machine, and context rows that see"):
        Routing.of(layout, 2)


@pytest.mark.parametrize("ranks", [(None, None), (2, None), (2, 3), (1, 1)])
@pytest.mark.parametrize("gain", [None, 3.0])
def test_parameters_and_their_model_are_one_function(gain, ranks):
    layout = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1.0)
    parameters = GramParameters(HeadSizes(3, 2, 5, *ranks), init_std=0.4, seed=1, gain=gain).double()
    with torch.no_grad():
        parameters.log_gain += 0.3
    tokens = draw(3, 8, 5)
    rows = query_rows(GramState.of(tokens, 2), parameters.layers(), Routing.of(layout, 2))
    model = parameters.to_model(layout)
    torch.testing.assert_close(model.predict(tokens), layout.predict(rows))
    for weights, rank in ((model.QK, ranks[0]), (model.OV, ranks[1])):
        assert (torch.linalg.matrix_rank(weights.AB) == (rank or 5)).all()


def test_limited_rank_starts_with_entries_of_the_same_size():
    sizes = HeadSizes(1, 4, 40, qk_rank=8)
    layer = GramParameters(sizes, init_std=0.1, seed=0).layers()[0]
    assert layer.Q.std().item() == pytest.approx(0.1, rel=0.1) and layer.V.std().item() == pytest.approx(0.1, rel=0.1)
    assert sizes.d_head == 40 and HeadSizes(1, 1, 40, 8, 10).d_head == 10


def test_all_scales_start_at_one_and_are_trained_unless_a_gain_is_given():
    sizes = HeadSizes(3, 1, 4)
    free, fixed = GramParameters(sizes, 0.1, seed=0), GramParameters(sizes, 0.1, seed=0, gain=9.0)
    assert free.log_gain.eq(0).all() and free.log_gain.requires_grad
    torch.testing.assert_close(fixed.log_gain.exp(), torch.tensor([1.0, 9.0, 81.0]))
    assert not fixed.log_gain.requires_grad
    for free_layer, fixed_layer in zip(free.layers(), fixed.layers(), strict=True):
        torch.testing.assert_close(free_layer.update([torch.eye(4)[None]]), fixed_layer.update([torch.eye(4)[None]]))


def test_balanced_factors():
    matrix = draw(2, 4, 4)
    left, right = balanced_factors(matrix, None, 6)
    torch.testing.assert_close(left @ right, matrix)
    torch.testing.assert_close(left.mT @ left, right @ right.mT)
    assert left.shape == (2, 4, 6) and not left[..., 4:].any()
