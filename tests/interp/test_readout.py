"""The read-out is found where a model is built to answer, and where it is not clear that is said."""

import pytest
import torch

from interp.answer_block import with_readout
from interp.layout import BlockLayout
from interp.readout import find_readout
from models.constructions.weights import linear_model

X, EXTRA = 3, 4


def answering_in(column: int, sign: float, gamma: float = 1.0, noise: float = 0.0):
    """One gradient step written, with a sign, into one of the columns x | y | position."""
    layout = BlockLayout.standard(x=X, y=1, position=EXTRA)
    size = layout.d_model
    Q, V = torch.zeros(2, 1, 1, size, size, dtype=torch.float64)
    Q[..., :X, :X] = torch.eye(X)
    V[..., X, column] = sign * gamma
    V += noise * torch.randn(V.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return linear_model(Q, V, layout)


def prompts(count: int = 400, seed: int = 0, position: bool = True):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 9, X, generator=generator, dtype=torch.float64) / 3
    w = torch.randn(count, X, 1, generator=generator, dtype=torch.float64)
    y, places = x @ w, torch.arange(9.0, dtype=torch.float64)[:, None] / torch.arange(1, EXTRA + 1)
    tokens = torch.cat([x, y, position * places.cos().expand(count, -1, -1)], dim=-1)
    tokens[:, -1, X] = 0
    return tokens, y[:, -1:]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("column", [X, X + 1, X + EXTRA])
def test_the_column_and_the_sign_are_found(column: int, sign: int):
    tokens, target = prompts(position=False)
    found = find_readout(answering_in(column, sign), tokens, target)
    assert found.clear and found.columns == (column,) and found.sign == sign
    assert found.targets[0].best.r2 > found.targets[0].runner_up.r2 + 0.3
    assert found.targets[0].together >= found.targets[0].best.r2 - 1e-12


def test_the_regression_is_that_of_numpy_without_a_constant():
    model, (tokens, target) = answering_in(X + 2, -1, noise=0.05), prompts()
    final = model.run_with_cache(tokens)[1]["blocks.0.hook_resid_post"][:, -1]
    for candidate in find_readout(model, tokens, target).targets[0].ranking:
        column, wanted = final[:, candidate.column], target[:, 0, 0]
        slope = (column @ wanted / (column @ column)).item() if column.any() else 0.0
        assert candidate.slope == pytest.approx(slope, rel=1e-10)
        assert candidate.r2 == pytest.approx(1 - ((wanted - slope * column).norm() / wanted.norm()).item() ** 2)
        assert candidate.error == pytest.approx(((wanted - candidate.sign * column).norm() / wanted.norm()).item())


def test_with_a_layout_columns_have_names_and_a_rotated_stream_is_the_same_model():
    tokens, target = prompts(position=False)
    model = answering_in(X + 2, -1)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    layout = BlockLayout({name: turn @ basis for name, basis in model.layout.columns.items()})
    Q, V = (turn @ matrix @ turn.T for matrix in (model.blocks[0].attn.QK.AB, model.blocks[0].attn.OV.AB))
    rotated = linear_model(Q[None].detach(), V[None].detach(), layout)
    plain = find_readout(model, tokens, target, model.layout).targets[0]
    found = find_readout(rotated, tokens @ turn.T, target, layout).targets[0]
    assert found.best.name == plain.best.name == "position[1]"
    assert found.margin == pytest.approx(plain.margin, rel=1e-9)


def test_into_gives_the_layout_that_predicts_the_target():
    tokens, target = prompts(position=False)
    model = answering_in(X + EXTRA, -1)
    layout = find_readout(model, tokens, target, model.layout).into()
    assert (layout.readout, layout.sign, layout.widths["position"]) == ("answer", -1, EXTRA - 1)
    assert layout.rotates_with("answer") == "y"
    final = model.run_with_cache(tokens)[1]["blocks.0.hook_resid_post"]
    torch.testing.assert_close(layout.predict(final)[:, 0, 0], -final[:, -1, -1], rtol=1e-12, atol=1e-14)


def test_a_block_that_is_the_answer_already_stays_whole():
    layout = with_readout(BlockLayout.standard(x=2, y=1, position=3), [2], -1)
    assert (list(layout.columns), layout.readout, layout.sign) == (["x", "y", "position"], "y", -1)


def test_a_model_that_answers_nothing_is_said_to():
    tokens, _ = prompts(position=False)
    target = torch.randn(400, 1, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = find_readout(answering_in(X, 1), tokens, target)
    assert not found.clear and "no column explains" in str(found)
    with pytest.raises(ValueError, match="not clear"):
        found.into(BlockLayout.standard(x=X, y=1, position=EXTRA))


def test_two_columns_that_answer_alike_are_a_tie():
    model = answering_in(X + 1, 1)
    with torch.no_grad():
        model.blocks[0].attn.W_V[..., X, :] = 0
        Q, V = model.blocks[0].attn.QK.AB[None], torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    V[..., X, [X + 1, X + 3]] = torch.tensor([1.0, -2.0], dtype=torch.float64)
    tokens, target = prompts(position=False)
    found = find_readout(linear_model(Q.detach(), V, model.layout), tokens, target)
    assert "tie" in found.unclear[0]


def test_two_targets_in_one_column_or_of_two_signs_are_not_clear():
    tokens, target = prompts(position=False)
    model = answering_in(X, 1)
    assert "one column is the best of two targets" in find_readout(model, tokens, target.expand(-1, -1, 2)).unclear
    assert "different signs" in str(find_readout(model, tokens, torch.cat([target, -target], -1)))


def test_what_is_no_question_is_refused():
    tokens, target = prompts()
    model = answering_in(X, 1)
    for given, wanted, layout, reason in [
        (tokens, target[:, 0], None, "the targets are"),
        (tokens[:10], target[:10], None, "10 prompts cannot tell"),
        (tokens, target * torch.nan, None, "NaN or inf"),
        (tokens, target * 0, None, "0 on every prompt"),
        (tokens, target, BlockLayout.standard(x=X, y=1, position=EXTRA, n_query=2), "2 query rows"),
    ]:
        with pytest.raises(ValueError, match=reason):
            find_readout(model, given, wanted, layout)


def test_a_block_that_is_found_to_answer_rotates_with_the_one_read_before():
    layout = with_readout(BlockLayout.standard(x=3, y=1, a=1, b=2), [4], -1)
    assert layout.readout == "a" and layout.rotates_with("a") == "y" and layout.rotates_with("b") == "b"
    wider = with_readout(BlockLayout.standard(x=3, y=1, a=1, b=2), [5, 6], 1)
    assert wider.readout == "b" and wider.rotates_with("b") == "b"
