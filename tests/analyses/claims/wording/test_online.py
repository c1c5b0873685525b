import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.wording.online import (
    Sizes,
    causal_eagle,
    measure,
    prefix_moments,
    schedules,
    states_seen,
    tokens_of,
    trained_schedule,
    weights_at_last_token,
)
from interp.solvers import EAGLE, T3, LeastSquares, RecursiveLeastSquares, iterate
from interp.unrolling import ClosedForm
from models.prompts import LogUniformSpectrum

SCHEDULE = ([-1.2, -2.0, -3.0], [1.3, 2.2, 3.5])


@pytest.fixture
def prompts():
    drawn = LogUniformSpectrum(n=6, d=3, kappa=4).sample(2, seed=0)
    return drawn.A, drawn.C


def by_hand(A, C):
    """One prompt, row by row: every row steps on the moments of the rows up to itself, the queries on those of all."""
    d = A.shape[1]
    rows, queries = torch.cat([A, C], 1), torch.eye(d, d + 1, dtype=torch.float64)
    for eta, gamma in zip(*SCHEDULE, strict=True):
        factors = torch.tensor([eta] * d + [-gamma], dtype=torch.float64)
        moments = [rows[: k + 1].T @ rows[: k + 1] for k in range(len(rows))]
        steps = torch.stack([row[:d] @ S[:d] * factors for row, S in zip(rows, moments, strict=True)])
        queries = queries + queries[:, :d] @ moments[-1][:d] * factors
        rows = rows + steps
    return -queries[:, d:]


def test_the_causal_model_is_the_recursion_row_by_row(prompts):
    w = weights_at_last_token(causal_eagle(SCHEDULE, 3), *prompts)
    expected = torch.stack([by_hand(a, c) for a, c in zip(*prompts, strict=True)])
    assert torch.allclose(w, expected, atol=1e-10)


def test_with_bidirectional_context_it_is_the_closed_form(prompts):
    w = weights_at_last_token(causal_eagle(SCHEDULE, 3, "context"), *prompts)
    form = ClosedForm(tuple(SCHEDULE[0]), tuple(SCHEDULE[1]))
    assert torch.allclose(w, form.implicit_weights(*prompts), atol=1e-10)


def test_named_schedules_are_eagle_with_the_norms_of_theory(prompts):
    w = weights_at_last_token(causal_eagle(schedules()["T₃ (4/3, 4/3)"], 3, "context"), *prompts)
    solver = EAGLE(*T3, norms=[3.0**-layer for layer in range(4)])
    assert torch.allclose(w, iterate(solver, LeastSquares(*prompts), 4)[-1], atol=1e-10)


def test_states_are_prefix_moments_in_the_first_layer_only(prompts):
    model, tokens = causal_eagle(SCHEDULE, 3), tokens_of(*prompts)
    expected = prefix_moments(*prompts)
    rows = torch.cat(prompts, 2)
    assert torch.allclose(expected[:, 3], rows[:, :4].mT @ rows[:, :4], atol=1e-12)
    assert torch.allclose(states_seen(model, tokens, 0)[:, :6], expected, atol=1e-12)
    assert not torch.allclose(states_seen(model, tokens, 1)[:, :6], expected, atol=1e-2)


def test_measured_against_least_squares_by_another_road():
    sizes = Sizes(n=12, d=10, prompts=3)
    findings = measure(sizes, Settings(seed=1))
    drawn = LogUniformSpectrum(n=12, d=10, kappa=10).sample(3, seed=1)
    w = weights_at_last_token(causal_eagle(trained_schedule(), 10), drawn.A, drawn.C)
    exact = torch.linalg.lstsq(drawn.A, drawn.C).solution
    gap = (w - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    assert findings.details["online"]["trained (eagle-d10), causal"]["1e-08"] == pytest.approx(gap.tolist(), rel=1e-4)
    found = findings.measurements["prefix-moments"]
    assert found.value > 0.5 and "In layer 0 the distance is" in found.note


def test_recursive_least_squares_of_all_rows_is_ridge(prompts):
    A, C = prompts
    ridge = torch.linalg.solve(A.mT @ A + 0.1 * torch.eye(3, dtype=torch.float64), A.mT @ C)
    assert torch.allclose(iterate(RecursiveLeastSquares(0.1), LeastSquares(A, C), 6)[-1], ridge, atol=1e-10)
