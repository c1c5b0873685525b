import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import BlockLayout, unroll
from interp.kernels import AttentionKernel
from interp.layout import RULES, Visibility
from interp.stats import relative_errors
from interp.unrolling.circuits import Group, canonical, extract_circuits
from models.config import TransformerConfig
from models.constructions.disguises import DISGUISES, rotated
from models.transformer import HookedTransformer
from tests.builders import eagle_model, linear_model, random_model, random_tokens

VISIBILITIES = {
    "context": Visibility(),
    "machines": Visibility("machine", "context"),
    "causal": Visibility("causal", "causal"),
    "all": Visibility("all", "all"),
    "self": Visibility("context", "context_and_self"),
    "two roles": (Visibility("machine", "none"), Visibility("none", "context")),
    "mixed": (Visibility("context", "context"), Visibility("machine", "context")),
    "one a machine": (Visibility("machine 0", "machine 0"), Visibility("machine 1", "machine 1")),
    "one a machine and all": (Visibility("machine 1", "none"), Visibility("context", "machine 0")),
}
RULE_NAMES = (*RULES, "machine 0", "machine 1", "machine 2")


@pytest.mark.parametrize("name", VISIBILITIES)
@pytest.mark.parametrize("scale", ["none", "n", "sqrt_d_head"])
def test_exact_rule_is_the_forward_pass(name: str, scale: str):
    model = random_model(3, 2, 3, 2, seed=1, scale=scale, visibility=VISIBILITIES[name], size=0.4)
    rule, tokens = unroll(model), random_tokens(model, 5, 6, seed=2)
    assert relative_errors(rule.predict(tokens, "exact"), model.predict(tokens)).max() < 1e-10


@given(
    x=st.integers(1, 4), y=st.integers(1, 3), layers=st.integers(1, 4), heads=st.integers(1, 3), seed=st.integers(0, 99)
)
@settings(max_examples=25, deadline=None)
def test_exact_rule_is_the_forward_pass_for_all_sizes(x: int, y: int, layers: int, heads: int, seed: int):
    model = random_model(x, y, layers, heads, seed, size=0.5)
    tokens = random_tokens(model, 3, 4, seed)
    assert relative_errors(unroll(model).predict(tokens, "exact"), model.predict(tokens)).max() < 1e-10


@given(
    rules=st.lists(
        st.builds(
            Visibility,
            st.sampled_from(RULE_NAMES),
            st.sampled_from([name for name in RULE_NAMES if name != "machine"]),
        ),
        min_size=1,
        max_size=4,
    ),
    scale=st.sampled_from(["none", "n"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_exact_rule_and_its_source_are_the_forward_pass_under_all_rules(rules, scale: str, seed: int):
    """Heads that serve one of three machines, mixed with heads of every other rule."""
    layout = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1, visibility=rules, machines=3)
    generator = torch.Generator().manual_seed(seed)
    Q, V = (0.4 * torch.randn(3, len(rules), 5, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    model = linear_model(Q, V, layout, scale)
    rule, tokens = unroll(model), random_tokens(model, 3, 6, seed)
    expected = model.predict(tokens)
    torch.testing.assert_close(rule.predict(tokens, "exact"), expected, rtol=1e-10, atol=1e-12)
    namespace: dict[str, object] = {}
    exec(compile(rule.python("exact"), "rule", "exec"), namespace)
    from_source = torch.from_numpy(namespace["predict"](tokens.numpy()))
    torch.testing.assert_close(from_source, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", DISGUISES)
def test_words_do_not_see_the_disguise(name: str):
    layout = BlockLayout.standard(x=4, y=2, n_query=2, sign=-1)
    eagle = eagle_model([-1.3, -2.0], [1.3, 2.1], layout, noise=0.05)
    model = _with_second_head(eagle)
    disguised = DISGUISES[name](model, 1)
    tokens = random_tokens(model, 4, 6, seed=0)
    in_disguise = tokens @ disguised.layout.basis.T  # the plain layout's basis is the identity
    assert relative_errors(disguised.predict(in_disguise), model.predict(tokens)).max() < 1e-12  # it is a disguise
    for plain, other in zip(unroll(model).layers, unroll(disguised).layers, strict=True):
        assert other.labelled("words") == pytest.approx(plain.labelled("words"), rel=1e-9, abs=1e-12)
        assert other.weights_explained == pytest.approx(plain.weights_explained, abs=1e-12)


def _with_second_head(model: HookedTransformer) -> HookedTransformer:
    generator = torch.Generator().manual_seed(8)
    shape = (model.cfg.n_layers, 1, model.cfg.d_model, model.cfg.d_model)
    first = {
        name: torch.stack([getattr(block.attn, name) for block in model.blocks]).detach() for name in ("W_Q", "W_V")
    }
    more = {name: 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64) for name in first}
    return linear_model(*(torch.cat([first[name], more[name]], dim=1) for name in first), model.layout)


def test_rotated_residual_stream_is_the_same_rule():
    model = random_model(4, 2, 3, 2, seed=5)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    skew = rotation @ torch.diag(torch.linspace(0.5, 2, 6, dtype=torch.float64))
    for basis in (rotation, skew):
        turned = rotated(model, basis)
        tokens = random_tokens(model, 4, 6, seed=0)
        assert relative_errors(turned.predict(tokens @ basis.T), model.predict(tokens)).max() < 1e-12
        for plain, other in zip(unroll(model).layers, unroll(turned).layers, strict=True):
            assert other.labelled("words") == pytest.approx(plain.labelled("words"), rel=1e-8, abs=1e-12)


@given(heads=st.integers(1, 5), size=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_canonical_heads_keep_the_tensor(heads: int, size: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    Q, V = (torch.randn(heads, size, size, generator=generator, dtype=torch.float64) for _ in range(2))
    group = Group(("context",), "context", Q, V)
    assert torch.allclose(canonical(group).tensor(), group.tensor(), atol=1e-12)


def test_canonical_heads_are_few():
    Q = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(3, 4, 4)
    V = torch.stack([Q[0] * 0.5, Q[0] * 2, -Q[0]])
    assert len(canonical(Group(("query",), "context", Q, V)).Q) == 1


def test_dead_directions_of_the_last_layer():
    model = random_model(3, 2, 2, 1, seed=0)
    first, last = extract_circuits(model, model.layout)
    assert first.live == {"context": ("x", "y"), "query": ("x", "y")}
    assert last.live == {"context": (), "query": ("y",)}
    changed = random_model(3, 2, 2, 1, seed=0)
    with torch.no_grad():
        changed.blocks[-1].attn.W_O[:, :, :3] += 1.0
    tokens = random_tokens(model, 3, 6, seed=0)
    assert torch.equal(changed.predict(tokens), model.predict(tokens))
    assert unroll(changed).layers[-1].labelled("words") == pytest.approx(unroll(model).layers[-1].labelled("words"))


def with_unread_block() -> HookedTransformer:
    """EAGLE on x and y that also writes to a block which nothing reads."""
    layout = BlockLayout.standard(x=3, junk=2, y=2, n_query=2, sign=-1)
    generator = torch.Generator().manual_seed(1)
    Q, V = torch.zeros(2, 2, 1, 7, 7, dtype=torch.float64)
    Q[..., :3, :3], V[..., :3, :3], V[..., 5:, 5:] = (c * torch.eye(w) for c, w in ((1.0, 3), (-1.0, 3), (-0.9, 2)))
    V[..., :3, 3:5] = torch.randn(2, 1, 3, 2, generator=generator, dtype=torch.float64)
    return linear_model(Q, V, layout)


def test_blocks_that_nothing_reads_are_dead_in_every_disguise():
    plain = with_unread_block()
    turn = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64))[0]
    for model in (plain, *(disguise(plain, 3) for disguise in DISGUISES.values()), rotated(plain, turn)):
        first, last = extract_circuits(model, model.layout)
        assert first.live == {"context": ("x", "y"), "query": ("x", "y")}
        assert last.live == {"context": (), "query": ("y",)}
        assert all(layer.weights_explained == pytest.approx(1.0, abs=1e-9) for layer in unroll(model).layers)


@pytest.mark.parametrize("name", VISIBILITIES)
def test_a_dead_block_moves_nothing(name: str):
    """Brute force: what is added to a dead block of a layer's output does not reach the answer, to a live one does."""
    model = random_model(2, 1, 3, 2, seed=4, visibility=VISIBILITIES[name], size=0.5)
    with torch.no_grad():
        for block in model.blocks[1:]:
            block.attn.W_Q[:, 2] = 0  # later layers do not read y of the row itself
            block.attn.W_K[:, 2] = 0
    tokens, layout = random_tokens(model, 2, 4, seed=1), model.layout
    answer = model.predict(tokens)
    for layer, circuit in enumerate(extract_circuits(model, layout)):
        for role in ("context", "query"):
            for block, columns in layout.slices.items():
                moved = _moved_by(model, tokens, layer, layout.rows(role, tokens.shape[1]), columns)
                change = (moved - answer).abs().max()
                assert change > 1e-9 if block in circuit.live[role] else change == 0


def _moved_by(model: HookedTransformer, tokens: torch.Tensor, layer: int, rows: slice, columns: slice) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)

    def push(z: torch.Tensor, hook: object) -> torch.Tensor:
        pushed = z.clone()
        pushed[:, rows, columns] += torch.randn(pushed[:, rows, columns].shape, generator=generator, dtype=z.dtype)
        return pushed

    output = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.hook_resid_post", push)])
    return output[:, -model.layout.n_query :]


def test_exact_zero_read_is_dead():
    layout = BlockLayout.standard(x=3, y=2, n_query=2, sign=-1)
    model = eagle_model([-1.0, -1.0], [1.0, 1.0], layout)
    with torch.no_grad():
        model.blocks[1].attn.W_O.zero_()
    first, _ = extract_circuits(model, layout)
    assert first.live == {"context": (), "query": ("y",)}


def _softmax(layout: BlockLayout) -> HookedTransformer:
    return HookedTransformer(TransformerConfig(1, 1, 5, 5, kernel=AttentionKernel("exp", "sum")), layout)


REFUSED = {
    "softmax": (_softmax, "softmax"),
    "layer norm": (
        lambda layout: HookedTransformer(TransformerConfig(1, 1, 5, 5, normalization_type="LN"), layout),
        "LN",
    ),
    "mlp": (lambda layout: HookedTransformer(TransformerConfig(1, 1, 5, 5, attn_only=False, d_mlp=4), layout), "MLP"),
    "positions": (
        lambda layout: HookedTransformer(
            TransformerConfig(1, 1, 5, 5, positional_embedding_type="standard", n_ctx=9), layout
        ),
        "position",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_no_cubic_map_are_refused(name: str):
    build, word = REFUSED[name]
    with pytest.raises(ValueError, match=f"{word}.*interp.hooks.capture"):
        unroll(build(BlockLayout.standard(x=3, y=2)))


def test_bias_nan_and_layout_are_refused_by_name():
    layout = BlockLayout.standard(x=3, y=2)
    biased = HookedTransformer(TransformerConfig(1, 1, 5, 5, use_biases=True), layout)
    assert unroll(biased).depth == 1  # zero biases act as none
    with torch.no_grad():
        biased.blocks[0].attn.b_Q += 1
    with pytest.raises(ValueError, match=r"blocks\.0\.attn\.b_Q is not zero"):
        unroll(biased)
    broken = random_model(3, 2, 2, 1, seed=0)
    with torch.no_grad():
        broken.blocks[1].attn.W_V[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"blocks\.1\.attn\.W_V holds NaN"):
        unroll(broken)
    with pytest.raises(ValueError, match="layout covers 6 columns"):
        unroll(random_model(3, 2, 2, 1, seed=0), BlockLayout.standard(x=3, y=3))
    with pytest.raises(ValueError, match="carries no layout"):
        unroll(torch.nn.Linear(2, 2))
