"""Pickled Haiku trees of linear attention, against einsum with the code's own order of axes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import foreign
from models.foreign import ForeignError, TokenForm
from models.foreign.tokens import CODED, positional_code
from models.prompts import UniformRegression

Tree = dict[str, dict[str, Any]]


def tree(layers: int = 2, width: int = 6, heads: int = 2, size: int = 3, dtype: str = "f4") -> Tree:
    rng = np.random.default_rng(0)
    shapes = {name: (width, heads * size) for name in ("key", "query", "value")} | {"linear": (heads * size, width)}
    return {
        f"net/layer_{layer}/{name}": {"w": (0.3 * rng.standard_normal(shape)).astype(dtype)}
        for layer in range(layers)
        for name, shape in sorted(shapes.items())
    }


def stored(tmp_path: Path, values: Any, protocol: int = 4) -> Path:
    path = tmp_path / "params.pkl"
    path.write_bytes(pickle.dumps(values, protocol))
    return path


def reference(params: Tree, tokens: np.ndarray, heads: int) -> np.ndarray:
    """z ← z + linear(Σ_T (query·key) value), T over all rows but the last."""
    z, layers = tokens, len(params) // 4
    for layer in range(layers):
        parts = {
            name: params[f"net/layer_{layer}/{name}"]["w"].astype(float) for name in ("key", "query", "value", "linear")
        }
        split = lambda a: a.reshape(*a.shape[:2], heads, -1)  # noqa: E731
        q, k, v = split(z @ parts["query"]), split(z[:, :-1] @ parts["key"]), split(z[:, :-1] @ parts["value"])
        mixed = np.einsum("bthd,bThd,bThe->bthe", q, k, v)
        z = z + mixed.reshape(*z.shape[:2], -1) @ parts["linear"]
    return z


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_it_is_the_same_function(protocol: int, tmp_path: Path):
    params = tree()
    ours = foreign.load(stored(tmp_path, params, protocol), heads=2)
    prompts = UniformRegression(n=8, d=5).sample(16, seed=0)
    expected = -reference(params, prompts.tokens.numpy(), 2)[:, -1:, -1:]
    assert np.abs(ours.predict(prompts).numpy() - expected).max() < 1e-12 * np.abs(expected).max()
    assert any("float32" in note for note in ours.notes)


def test_the_layers_are_ordered_by_number(tmp_path: Path):
    params = tree(layers=11, size=2, heads=1)
    ours = foreign.load(stored(tmp_path, params))
    last = params["net/layer_10/linear"]["w"].astype(float).reshape(1, 2, 6)
    assert np.array_equal(ours.model.blocks[10].attn.W_O.detach().numpy(), last)


def test_one_layer_can_recur(tmp_path: Path):
    params = tree(layers=1)
    ours = foreign.load(stored(tmp_path, params), heads=2, layers=3)
    thrice = {f"net/layer_{i}/{key.rpartition('/')[2]}": value for i in range(3) for key, value in params.items()}
    prompts = UniformRegression(n=8, d=5).sample(4, seed=0)
    expected = -reference(thrice, prompts.tokens.numpy(), 2)[:, -1:, -1:]
    assert np.allclose(ours.predict(prompts).numpy(), expected, rtol=1e-12, atol=0)
    with pytest.raises(ForeignError, match="2 layers of its own, which layers=3 does not fit"):
        foreign.load(stored(tmp_path, tree(layers=2)), heads=2, layers=3)


def test_a_positional_code_is_appended_to_the_tokens(tmp_path: Path):
    ours = foreign.load(stored(tmp_path, tree(width=9)), layout="x=4,y=1,position=4", heads=2)
    prompts = UniformRegression(n=8, d=4).sample(3, seed=0)
    tokens = ours.tokens(prompts)
    assert ours.form == TokenForm(CODED, 4) and tokens.shape == (3, 9, 9)
    for k in range(9):
        angles = [k / 10_000 ** (2 * (c // 2) / 4) for c in range(4)]
        code = [np.sin(a) if c % 2 == 0 else np.cos(a) for c, a in enumerate(angles)]
        assert np.allclose(tokens[1, k, 5:].numpy(), code, rtol=0, atol=1e-15)
    assert positional_code(9, 4).shape == (9, 4)
    with pytest.raises(ValueError, match="they come in pairs"):
        TokenForm(CODED, 3)


def test_columns_of_another_meaning_have_no_tokens(tmp_path: Path):
    ours = foreign.load(stored(tmp_path, tree()), layout="x=2,y=1,odd=3", heads=2)
    with pytest.raises(ForeignError, match="how prompts become tokens is not known"):
        ours.tokens(UniformRegression(n=8, d=2).sample(3, seed=0))


BAD: dict[str, tuple[Tree, dict[str, Any], str]] = {
    "heads": (tree(), dict(heads=4), "6 columns of queries or values cannot be split into 4 heads"),
    "missing": ({k: v for k, v in tree().items() if k != "net/layer_1/value"}, {}, "'net/layer_1' has no V matrix"),
    "bias": (
        tree() | {"net/layer_0/key": {"b": np.zeros(3)}},
        {},
        "'net/layer_0/key/b' belongs to no linear",
    ),
    "mlp": (tree() | {"net/mlp": {"w": np.zeros((3, 3))}}, {}, "'net/mlp/w' belongs to no linear attention layer"),
    "shape": (
        tree() | {"net/layer_0/linear": {"w": np.zeros((3, 3))}},
        {},
        r"'O' has the shape \[3, 3\], and \[6, 6\]",
    ),
    "complex": (tree(dtype="c16"), {}, "'net/layer_0/key/w' of params.pkl is of type complex128"),
    "integers": (tree(dtype="i4"), {}, "is of type int32; weights are float arrays"),
    "layout": (tree(), dict(layout="x=10,y=1"), "the layout describes 11 columns"),
    "option": (tree(), dict(eta=1), "the format haiku has no option eta"),
    "text": (tree(), dict(layout="x=10,y"), "the entry 'y', which is not NAME=int"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(name: str, tmp_path: Path):
    values, options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        foreign.load(stored(tmp_path, values), **options)


def test_half_precision_is_upcast_and_said(tmp_path: Path):
    ours = foreign.load(stored(tmp_path, tree(dtype="f2")), heads=2)
    assert "float16 weights, upcast to float64" in ours.notes
    assert ours.model.W_Q.dtype.is_floating_point and ours.parity is not None and ours.parity.holds
