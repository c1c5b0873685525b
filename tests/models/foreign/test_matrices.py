"""Bare matrices and archives of them, against loops over rows in numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp.layout import BlockLayout, Visibility
from models import foreign
from models.foreign import ForeignError, from_matrices
from models.prompts import UniformRegression

LAYOUT = BlockLayout.standard(x=4, y=1)
PROMPTS = UniformRegression(n=7, d=4).sample(5, seed=0)
Matrices = dict[str, np.ndarray]


def draw(layers: int = 2, heads: int = 2, d: int = 5, key: int = 3, value: int = 4) -> Matrices:
    """Q, K, V, O [layer, head, …]."""
    rng = np.random.default_rng(1)
    shapes = {"Q": (d, key), "K": (d, key), "V": (d, value), "O": (value, d)}
    return {name: rng.standard_normal((layers, heads, *shape)) for name, shape in shapes.items()}


def flat(W: Matrices) -> Matrices:
    """The same with heads side by side."""
    columns = {name: np.concatenate(list(np.moveaxis(W[name], 1, 0)), axis=-1) for name in "QKV"}
    return {**columns, "O": np.concatenate(list(np.moveaxis(W["O"], 1, 0)), axis=-2)}


def by_loops(W: Matrices, scale: float = 1.0, causal: bool = False) -> np.ndarray:
    """The y column of the query row, row by row."""
    answers = []
    for z in PROMPTS.tokens.numpy():
        for layer in range(len(W["Q"])):
            new = z.copy()
            for Q, K, V, O in zip(*(W[name][layer] for name in "QKVO"), strict=True):  # noqa: E741
                for i in range(len(z)):
                    for k in range(i + 1 if causal else len(z) - 1):
                        new[i] += scale * ((z[i] @ Q) @ (z[k] @ K)) * (z[k] @ V @ O)
            z = new
        answers.append(z[-1, -1])
    return np.array(answers)


def assert_same(ours: foreign.Foreign, expected: np.ndarray) -> None:
    found = ours.predict(PROMPTS).flatten().numpy()
    assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()
    assert ours.parity is not None and ours.parity.holds


@pytest.mark.parametrize("kind", ["numpy", "torch", "lists"])
@pytest.mark.parametrize("side_by_side", [True, False])
def test_it_is_the_same_function(kind: str, side_by_side: bool):
    W = draw()
    given: dict[str, Any] = flat(W) if side_by_side else W
    convert = {"numpy": lambda a: a, "torch": torch.from_numpy, "lists": list}[kind]
    ours = from_matrices(*(convert(given[name]) for name in "QKVO"), LAYOUT, heads=2)
    assert_same(ours, by_loops(W))


@pytest.mark.parametrize(("scale", "factor"), [("n", 1 / 7), ("sqrt_d_head", 3**-0.5)])
def test_the_scale_of_the_scores(scale: str, factor: float):
    assert_same(from_matrices(*draw().values(), LAYOUT, scale=scale), by_loops(draw(), factor))


def test_transposed_matrices_and_a_causal_layout():
    W, seen = draw(), Visibility("causal", "causal")
    turned = [np.swapaxes(W[name], -1, -2) for name in "QKVO"]
    ours = from_matrices(*turned, BlockLayout.standard(x=4, y=1, visibility=seen), transposed=True)
    assert_same(ours, by_loops(W, causal=True))


def test_merged_matrices():
    W = draw(heads=1)
    Q, V = W["Q"] @ np.swapaxes(W["K"], -1, -2), W["V"] @ W["O"]
    assert_same(from_matrices(Q[:, 0], None, V[:, 0], None, LAYOUT), by_loops(W))


@pytest.mark.parametrize("compressed", [True, False])
def test_archives(compressed: bool, tmp_path: Path):
    W, save = draw(), np.savez_compressed if compressed else np.savez
    save(tmp_path / "stacked.npz", **flat(W))
    save(tmp_path / "listed.npz", **{f"W_{name}_{layer}": W[name][layer] for name in "QKVO" for layer in (0, 1)})
    for name, options in {"stacked.npz": dict(heads=2), "listed.npz": {}}.items():
        ours = foreign.load(tmp_path / name, layout="x=4,y=1", **options)
        assert_same(ours, by_loops(W))
        assert ours.provenance["file"] == name and ours.provenance["loader"] == "matrices"


def test_an_archive_without_a_layout_says_what_was_assumed(tmp_path: Path):
    np.savez(tmp_path / "theirs.npz", **draw())
    ours = foreign.load(tmp_path / "theirs.npz")
    assert ours.layout.widths == {"x": 4, "y": 1} and any("columns x (4) and y (1)" in note for note in ours.notes)


BAD: dict[str, tuple[Matrices, dict[str, Any], str]] = {
    "no O": ({k: v for k, v in draw().items() if k != "O"}, {}, "has Q, K, V; give K and O, or neither"),
    "a layer less": (draw() | {"K": draw(layers=1)["K"]}, {}, "has no matrix 'K_1'"),
    "shapes": (draw() | {"O": draw(value=2)["O"]}, {}, "the matrices of a layer do not fit together"),
    "heads": (flat(draw()), dict(heads=4), "6 columns of queries or values cannot be split into 4 heads"),
    "scale": (draw(), dict(scale="sqrt"), "unknown scale 'sqrt' of the scores; known: none, sqrt_d_head, n"),
    "layout": (draw(), dict(layout="x=3,y=1"), "the layout describes 4 columns"),
    "five axes": ({k: v[None] for k, v in draw().items()}, {}, "they are two- or three-dimensional"),
    "complex": (draw() | {"Q": draw()["Q"] + 0j}, {}, "'Q_0' of theirs.npz is of type complex128"),
    "NaN": (draw() | {"V": draw()["V"] * np.nan}, {}, "'V_0' of theirs.npz holds NaN"),
    "name": (
        draw() | {"gate": draw()["V"]},
        dict(format="matrices"),
        "holds the array 'gate'; the names read are Q, K",
    ),
    "unknown": ({"weights": np.zeros(3)}, {}, "no loader takes theirs.npz, a npz file of weights"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(name: str, tmp_path: Path):
    arrays, options, message = BAD[name]
    np.savez(tmp_path / "theirs.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        foreign.load(tmp_path / "theirs.npz", **options)


def test_layers_of_different_shapes():
    one, other = draw(layers=1), draw(layers=1, key=2)
    with pytest.raises(ForeignError, match="the layers have 2 different shapes"):
        from_matrices(*([one[name][0], other[name][0]] for name in "QKVO"), LAYOUT)
