import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.layout import RULES, BlockLayout, Visibility

N, QUERIES, MACHINES = 6, 3, 2

SEES = {
    "none": lambda i, k: False,
    "context": lambda i, k: k < N,
    "machine": lambda i, k: k < N and i // 3 == k // 3,
    "context_and_self": lambda i, k: k < N or k == i,
    "causal": lambda i, k: k <= i,
    "all": lambda i, k: True,
    "machine 1": lambda i, k: k < N and k // 3 == 1 and (i >= N or i // 3 == 1),
}
PAIRS = [(context, query) for context in SEES for query in SEES if query != "machine"]


def rotation(size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q


def rotated(seed: int = 0, **options: object) -> BlockLayout:
    basis = rotation(5, seed) @ torch.diag(torch.arange(1.0, 6.0, dtype=torch.float64))
    return BlockLayout({"x": basis[:, :3], "y": basis[:, 3:]}, **options)


@pytest.mark.parametrize(("context", "query"), PAIRS)
def test_mask_is_the_rule_of_the_rows_role(context: str, query: str):
    layout = BlockLayout.standard(x=2, y=1, n_query=QUERIES, machines=MACHINES, visibility=Visibility(context, query))
    size = N + QUERIES
    expected = [[SEES[context if i < N else query](i, k) for k in range(size)] for i in range(size)]
    assert layout.allowed(size, 2).tolist() == [expected, expected]


def test_each_head_has_its_own_rule():
    layout = BlockLayout.standard(x=2, y=1, visibility=[Visibility("causal", "all"), Visibility("none", "context")])
    first, second = layout.allowed(4, 2)
    assert torch.equal(first[:3], torch.ones(4, 4).tril().bool()[:3])
    assert first[3].all()
    assert not second[:3].any()
    assert second[3].tolist() == [True, True, True, False]


def test_the_rules_in_the_docstring_are_all_tested():
    assert set(SEES) == {*RULES, "machine 1"}


def test_coordinates_invert_the_basis():
    layout = rotated(n_query=2)
    u = torch.randn(4, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(layout.coordinates(u @ layout.basis.T), u, atol=1e-12)


def test_prediction_is_the_signed_block_of_the_query_rows():
    layout = rotated(n_query=2, sign=-0.5)
    u = torch.randn(4, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(layout.predict(u @ layout.basis.T), -0.5 * u[:, -2:, 3:], atol=1e-12)


def test_prediction_keeps_the_dtype_of_the_stream():
    assert BlockLayout.standard(x=2, y=1).predict(torch.zeros(1, 3, 3)).dtype == torch.float32


def test_standard_blocks_are_consecutive_columns():
    layout = BlockLayout.standard(x=2, one=1, y=3, n_query=4, readout="x")
    assert layout.widths == {"x": 2, "one": 1, "y": 3}
    assert layout.slices == {"x": slice(0, 2), "one": slice(2, 3), "y": slice(3, 6)}
    assert torch.equal(layout.basis, torch.eye(6, dtype=torch.float64))
    assert (layout.d_model, layout.n_query, layout.readout) == (6, 4, "x")


def test_the_layout_keeps_its_own_columns():
    columns = {"x": torch.eye(2)[:, :1], "y": torch.eye(2)[:, 1:]}
    layout = BlockLayout(columns)
    columns["x"] = torch.zeros(2, 1)
    rules = [Visibility()]
    per_head = BlockLayout.standard(x=1, y=1, visibility=rules)
    rules.append(Visibility())
    assert per_head.visibility == (Visibility(),)
    assert torch.equal(layout.columns["x"], torch.tensor([[1.0], [0.0]], dtype=torch.float64))


LAYOUTS = {
    "standard": BlockLayout.standard(x=3, y=2, n_query=2, sign=-1),
    "rotated": rotated(n_query=2),
    "permuted": BlockLayout({"x": torch.eye(3)[:, [2, 0]], "y": torch.eye(3)[:, [1]]}),
    "machines": BlockLayout.standard(x=1, y=1, machines=3, visibility=Visibility("machine", "all")),
    "heads": BlockLayout.standard(x=1, y=1, visibility=[Visibility(), Visibility("causal", "causal")]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_json_round_trip_is_exact(name: str):
    layout = LAYOUTS[name]
    again = BlockLayout.from_dict(json.loads(json.dumps(layout.to_dict())))
    assert again == layout
    assert torch.equal(again.basis, layout.basis)
    assert torch.equal(again.allowed(10, 2), layout.allowed(10, 2))


def test_layouts_differ_by_any_entry():
    assert len({json.dumps(layout.to_dict()) for layout in LAYOUTS.values()}) == len(LAYOUTS)
    assert LAYOUTS["standard"] != rotated(n_query=2)
    assert LAYOUTS["standard"] != "standard"
    assert BlockLayout.standard(x=1, y=1) != BlockLayout.standard(x=1, y=1, n_query=2)


def test_unit_vectors_are_written_as_indices():
    assert LAYOUTS["permuted"].to_dict()["columns"] == {"x": [2, 0], "y": [1]}


@given(n=st.integers(1, 40), machines=st.integers(1, 5), n_query=st.integers(1, 4))
def test_machines_partition_the_context(n: int, machines: int, n_query: int):
    layout = BlockLayout.standard(
        x=1, y=1, n_query=n_query, machines=machines, visibility=Visibility("machine", "none")
    )
    n *= machines
    own = layout.allowed(n + n_query, 1)[0, :n]
    assert torch.equal(own[:, :n], own[:, :n].T)
    assert own.sum(-1).tolist() == [n // machines] * n
    assert not own[:, n:].any()


EYE = torch.eye(3)
BAD_LAYOUTS = {
    "no blocks": (dict(columns={}), "no column blocks"),
    "no read-out": (dict(columns={"x": EYE[:, :2], "z": EYE[:, 2:]}), "read-out block 'y'"),
    "columns left": (dict(columns={"x": EYE[:, :1], "y": EYE[:, 1:2]}), "do not cover the 3 columns"),
    "columns twice": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 1:2]}), "do not cover the 3 columns"),
    "too many": (dict(columns={"x": EYE, "y": EYE[:, 1:2]}), "do not cover the 3 columns"),
    "heights": (dict(columns={"x": EYE[:2, :2], "y": EYE[:, 2:]}), "every basis must be"),
    "vector": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2]}), "every basis must be"),
    "empty block": (dict(columns={"x": EYE, "y": EYE[:, :0]}), "basis of block 'y' is empty"),
    "nan": (dict(columns={"x": EYE[:, :2] * math.nan, "y": EYE[:, 2:]}), "basis of block 'x' is empty or not finite"),
    "no query": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2:]}, n_query=0), "n_query must be a whole number"),
    "half a query": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2:]}, n_query=1.5), "n_query must be a whole number"),
    "no machine": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2:]}, machines=0), "machines must be a whole number"),
    "sign": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2:]}, sign=0.0), "sign of the read-out"),
    "sign nan": (dict(columns={"x": EYE[:, :2], "y": EYE[:, 2:]}, sign=math.nan), "sign of the read-out"),
}


@pytest.mark.parametrize("name", BAD_LAYOUTS)
def test_bad_layouts_are_refused(name: str):
    arguments, message = BAD_LAYOUTS[name]
    built = BlockLayout.__new__(BlockLayout)  # past the type checker of the suite, which would refuse some of these
    defaults = dict(n_query=1, visibility=Visibility(), machines=1, readout="y", sign=1.0)
    for key, value in {**defaults, **arguments}.items():
        object.__setattr__(built, key, value)
    with pytest.raises(ValueError, match=message):
        built.__post_init__()


BAD_DICTS = {
    "missing": (lambda d: d.pop("sign"), "entries must be"),
    "unknown": (lambda d: d.update(colour=1), "entries must be"),
    "index too large": (lambda d: d["columns"].update(y=[7]), "not as `to_dict` writes them"),
    "empty": (lambda d: d["columns"].update(y=[]), "not as `to_dict` writes them"),
    "columns a list": (lambda d: d.update(columns=[1, 2]), "not as `to_dict` writes them"),
    "visibility a word": (lambda d: d.update(visibility="context"), "not as `to_dict` writes them"),
    "unknown role": (lambda d: d.update(visibility={"context": "all", "key": "all"}), "not as `to_dict` writes them"),
    "unknown rule": (lambda d: d.update(visibility={"context": "some"}), "unknown rule 'some'; known rules: none,"),
}


@pytest.mark.parametrize("name", BAD_DICTS)
def test_bad_dictionaries_are_refused(name: str):
    spoil, message = BAD_DICTS[name]
    values = BlockLayout.standard(x=2, y=1).to_dict()
    spoil(values)
    with pytest.raises(ValueError, match=message):
        BlockLayout.from_dict(values)


def test_a_misspelt_option_is_no_block():
    with pytest.raises(ValueError, match=r"visibilty=.* is no width of a block; options: .*'visibility'"):
        BlockLayout.standard(x=2, y=1, visibilty=Visibility())


def test_rows_that_do_not_fit_are_refused():
    layout = BlockLayout.standard(x=2, y=1, n_query=2, machines=2)
    with pytest.raises(ValueError, match="2 rows has no context: the layout takes 2 query rows"):
        layout.allowed(2, 1)
    with pytest.raises(ValueError, match="3 context rows cannot be split evenly over 2 machines"):
        layout.n_context(5)
    with pytest.raises(ValueError, match=r"has 3 columns .* have 4"):
        layout.coordinates(torch.zeros(5, 4))
    with pytest.raises(ValueError, match=r"has 3 columns .* have 4"):
        layout.predict(torch.zeros(5, 4))


def test_visibilities_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="unknown rule 'some'; known rules: none, context"):
        Visibility("some")
    with pytest.raises(ValueError, match="query rows belong to no machine"):
        Visibility("machine", "machine")
    with pytest.raises(ValueError, match="2 visibilities for a model of 3 heads"):
        LAYOUTS["heads"].head_visibility(3)
    with pytest.raises(ValueError, match="a head serves machine 2 of 2, counted from 0"):
        BlockLayout.standard(x=1, y=1, machines=2, visibility=[Visibility("machine 2", "none")])
    for name in ("machine 01", "machine -1", "machine ١", "machine x"):
        with pytest.raises(ValueError, match="unknown rule"):
            Visibility(name)


@pytest.mark.parametrize(
    ("symmetry", "message"),
    [
        ({"velocity": "z"}, "the blocks are"),
        ({"velocity": "x"}, "cannot rotate together"),
        ({"velocity": "y", "y": "velocity"}, "itself rotates with another"),
    ],
)
def test_symmetry_is_between_blocks_of_one_width(symmetry: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        BlockLayout.standard(x=3, y=2, velocity=2, symmetry=symmetry)


def test_symmetry_is_stored_and_old_layouts_have_none():
    layout = BlockLayout.standard(x=3, y=2, velocity=2, symmetry={"velocity": "y"})
    assert BlockLayout.from_dict(layout.to_dict()).symmetry == {"velocity": "y"}
    values = {name: value for name, value in layout.to_dict().items() if name != "symmetry"}
    assert BlockLayout.from_dict(values).symmetry == {}
