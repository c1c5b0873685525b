"""The terms of a prediction: an exact split, each by a loop over rows written here; regressions against numpy."""

import numpy as np
import pytest
import torch

from interp import unroll
from interp.gradient_step import gradient_directions, gradient_share, tuned_steps
from interp.layout import BlockLayout, Visibility
from interp.terms import INPUT, terms_of
from models.constructions.weights import linear_model
from tests.builders import random_model, random_tokens


def three_blocks(layers: int = 1, scale: str = "none", seed: int = 0, rule: str = "context"):
    layout = BlockLayout.standard(x=3, y=1, position=2, n_query=2, sign=-1, visibility=Visibility(rule, rule))
    generator = torch.Generator().manual_seed(seed)
    Q, V = 0.2 * torch.randn(2, layers, 2, 6, 6, generator=generator, dtype=torch.float64)
    return linear_model(Q, V, layout, scale)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("scale", ["none", "n"])
def test_terms_sum_to_the_prediction(layers: int, scale: str):
    model = three_blocks(layers, scale)
    tokens = random_tokens(model, 50, 5, seed=1)
    tokens[:, :, 4:] += 1  # the input's read-out and the moments with constants count too
    found = terms_of(unroll(model), tokens)
    prediction = model.predict(tokens).detach()
    assert sum(term.share for term in found.terms) == pytest.approx(1, abs=1e-10)
    assert sum(term.mean for term in found.terms) == pytest.approx(prediction.mean().item(), abs=1e-12)
    assert found.variance == pytest.approx((prediction - prediction.mean(0)).square().mean().item(), rel=1e-10)


@pytest.mark.parametrize("rule", ["context", "causal"])
def test_a_term_is_what_a_loop_over_seen_rows_gives(rule: str):
    """z_x (Q_xx S_xy V_y + Q_xy S_yx V_x) → y from the model's weights, row by row."""
    model = three_blocks(rule=rule)
    tokens, attn = random_tokens(model, 30, 4, seed=2), model.blocks[0].attn
    Q, V = attn.QK.AB.detach().numpy(), attn.OV.AB.detach().numpy()
    z, x, y = tokens.numpy(), slice(0, 3), slice(3, 4)
    values = np.zeros((30, 2, 1))
    for p in range(30):
        for i in range(2):
            for k in range(4 if rule == "context" else 5 + i):
                for h in range(2):
                    seen = z[p, k]
                    pairs = Q[h][x, x] @ seen[x] * (seen[y] @ V[h][y, y]) + Q[h][x, y] @ seen[y] * (
                        seen[x] @ V[h][x, y]
                    )
                    values[p, i] -= z[p, 4 + i, x] @ pairs
    prediction = model.predict(tokens).detach().numpy()
    moved = prediction - prediction.mean(0)
    found = terms_of(unroll(model), tokens)
    assert found.share(row="x", moment=("y", "x")) == pytest.approx(
        (values * moved).mean() / (moved**2).mean(), abs=1e-10
    )
    term = next(term for term in found.terms if (term.row, term.moment) == ("x", ("x", "y")))
    assert term.rms == pytest.approx(np.sqrt((values**2).mean()), rel=1e-10)


def test_a_gradient_step_is_one_term_and_all_of_it_words():
    layout = BlockLayout.standard(x=3, y=1, position=2, sign=-1)
    Q, V = torch.zeros(2, 1, 1, 6, 6, dtype=torch.float64)
    Q[..., :3, :3], V[..., 3, 3] = torch.eye(3), -0.7
    model = linear_model(Q, V, layout)
    tokens = random_tokens(model, 40, 5, seed=3)
    found = terms_of(unroll(model), tokens)
    assert found.share(row="x", moment=("x", "y")) == pytest.approx(1, abs=1e-12)
    assert found.terms[0].word_share == pytest.approx(1, abs=1e-12)
    assert found.reading({"position"}) == pytest.approx(0, abs=1e-12)
    assert "z_x S_xy" in found.table() and INPUT in {str(term) for term in found.terms}
    step = gradient_share(model.predict(tokens).detach(), gradient_directions(*parts(tokens))[0])
    assert (step.step, step.share, step.r2) == pytest.approx((0.7, 1, 1), abs=1e-10)


def parts(tokens):
    return tokens[:, :-1, :3], tokens[:, -1:, :3], tokens[:, :-1, 3:4]


def test_one_prediction_for_all_prompts_has_no_shares():
    model = random_model(2, 1, 1, 1, seed=0)
    with pytest.raises(ValueError, match="same on every prompt"):
        terms_of(unroll(model), torch.zeros(8, 6, 3, dtype=torch.float64))


def test_steps_of_gradient_descent_lie_in_the_span_and_are_found():
    generator = torch.Generator().manual_seed(4)
    A = torch.randn(60, 7, 3, generator=generator, dtype=torch.float64) / 3
    B = torch.randn(60, 2, 3, generator=generator, dtype=torch.float64)
    C = torch.randn(60, 7, 2, generator=generator, dtype=torch.float64)
    w = torch.zeros(60, 3, 2, dtype=torch.float64)
    for gamma in (0.5, 0.3):
        w = w - gamma * A.mT @ (A @ w - C)
    directions = gradient_directions(A, B, C, 2)
    torch.testing.assert_close(
        tuned_steps(directions, B @ w), torch.tensor([0.8, -0.15], dtype=torch.float64), rtol=1e-9, atol=1e-12
    )


def test_the_share_is_a_regression_without_a_constant_and_its_error_covers_the_truth():
    generator = torch.Generator().manual_seed(5)
    direction = torch.randn(4000, 1, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(4000, 1, 1, generator=generator, dtype=torch.float64)
    found = gradient_share(0.4 * direction + 0.3 * noise, direction)
    assert abs(found.step - 0.4) < 4 * found.step_error < 0.04
    prediction = (0.4 * direction + 0.3 * noise).numpy().ravel()
    residual = (
        prediction
        - np.linalg.lstsq(direction.numpy().reshape(-1, 1), prediction, rcond=None)[0] * direction.numpy().ravel()
    )
    assert found.share == pytest.approx(1 - (residual**2).mean() / prediction.var(), rel=1e-12)


def test_what_has_no_step_is_refused(as_users_run):
    one = torch.ones(3, 1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="direction is 0"):
        gradient_share(one, 0 * one)
    with pytest.raises(ValueError, match="the prediction is"):
        gradient_share(one, one[:2])
    with pytest.raises(ValueError, match="at least 1"):
        gradient_directions(one, one, one, 0)
