"""Order, rate and depth on sequences whose answer is known, and on solvers."""

import math

import numpy as np
import pytest
import torch

from interp.convergence import order, rate, steps_to, trajectory
from interp.solvers import EAGLE, T3, GradientDescent, NewtonSchulz, iterate
from tests.interp.solvers.cases import squares


def powers(q: float, steps: int, start: torch.Tensor, noise: float = 0.0, seed: int = 0) -> torch.Tensor:
    """e_{k+1} = e_k^q times a random factor."""
    generator, errors = torch.Generator().manual_seed(seed), [start.double()]
    for _ in range(steps):
        factor = torch.exp(noise * torch.randn(start.shape, generator=generator).double())
        errors.append(errors[-1] ** q * factor)
    return torch.stack(errors)


def geometric(factors: list[float], steps: int) -> torch.Tensor:
    return torch.tensor(factors).double() ** torch.arange(steps + 1)[:, None]


@pytest.mark.parametrize("q", [1.3, 2.0, 3.0])
def test_order_of_a_power_law(q: float):
    found = order(powers(q, 6, torch.tensor([0.45, 0.4, 0.3])))
    assert found.value == pytest.approx(q, abs=1e-9)
    assert found.low == pytest.approx(q, abs=1e-9) and found.high == pytest.approx(q, abs=1e-9)
    assert found.prompts == 3 and found.interval == "prompts resampled"


def test_each_prompt_has_its_own_constant():
    """C from 0.1 to 10 with slope 2: pooled without intercepts the slope would be another."""
    errors = [torch.tensor([0.05, 0.05, 0.05]).double()]
    for _ in range(2):
        errors.append(torch.tensor([0.1, 1.0, 10.0]) * errors[-1] ** 2)
    assert order(torch.stack(errors)).value == pytest.approx(2.0, abs=1e-9)


def test_interval_holds_the_order_about_19_times_in_20():
    held, single = 0, 0
    for seed in range(200):
        errors = powers(1.5, 5, torch.linspace(0.2, 0.4, 40), noise=0.1, seed=seed)
        found = order(errors, resamples=300)
        held += found.low <= 1.5 <= found.high
        alone = order(powers(1.2, 12, torch.tensor([0.4]), noise=0.1, seed=seed))
        single += alone.low <= 1.2 <= alone.high
        assert alone.interval == "regression" and found.low < found.value < found.high
    assert 175 <= held <= 199 and 175 <= single <= 199


def test_slope_is_numpys_for_one_prompt():
    errors = powers(1.2, 12, torch.tensor([0.4]), noise=0.1, seed=3)
    logs = errors[errors[:, 0] > 1e3 * np.finfo(float).eps, 0].log().numpy()
    assert order(errors).value == pytest.approx(np.polyfit(logs[:-1], logs[1:], 1)[0], rel=1e-10)
    assert rate(errors).value == pytest.approx(math.exp(np.polyfit(np.arange(len(logs)), logs, 1)[0]), rel=1e-10)


def test_linear_rate():
    errors = geometric([0.5, 0.5], 20)
    assert rate(errors).value == pytest.approx(0.5) and order(errors).value == pytest.approx(1.0)
    mixed = rate(geometric([0.4, 0.6], 20))
    assert mixed.low < mixed.value < mixed.high and mixed.value == pytest.approx((0.4 * 0.6) ** 0.5)
    assert rate(torch.ones(5, 2)).value == 1.0


def test_the_rounding_floor_takes_no_part():
    """A second-order sequence that levels off at 1e-9, and one that does at ε."""
    clean = powers(2.0, 8, torch.tensor([0.4, 0.3]))
    for level in (1e-9, 1e-15):
        stuck = clean + level * (1 + 0.3 * torch.rand(9, 2, generator=torch.Generator().manual_seed(1)).double())
        found = order(stuck)
        assert found.value == pytest.approx(2.0, abs=0.02) and found.smallest > level
    assert order(clean + 1e-9, floor=0.0).value < 1.9


def test_zeros_end_a_trajectory():
    errors = geometric([0.5, 0.25], 10)
    errors[6:] = 0
    assert rate(errors).points == 12 and order(errors).value == pytest.approx(1.0)


def test_solvers_have_their_order():
    problem = squares(kappa=30.0, noise=0.0)
    exact = torch.linalg.pinv(problem.A) @ problem.C
    second = [order(trajectory(iterate(s, problem, 24), exact), below=0.1) for s in (NewtonSchulz(), EAGLE())]
    first = [order(trajectory(iterate(s, problem, 300), exact)) for s in (GradientDescent(), EAGLE(*T3))]
    assert second[0].value == pytest.approx(2.0, abs=0.01)
    assert second[1].value == pytest.approx(2.05, abs=0.06)  # from above: e_{k+1} = e_k δ_k with δ_{k+1} = ¾ δ_k²
    assert all(found.low <= found.value <= found.high for found in (*first, *second))
    assert first[0].value == pytest.approx(1.0, abs=0.02)
    shrink = rate(trajectory(iterate(GradientDescent(), squares(kappa=5.0), 400)[100:], squared_solution(5.0)))
    assert shrink.value == pytest.approx((25 - 1) / (25 + 1), abs=1e-3)


def squared_solution(kappa: float) -> torch.Tensor:
    problem = squares(kappa=kappa)
    return torch.linalg.pinv(problem.A) @ problem.C


def test_steps_to():
    errors = torch.stack(
        [geometric([0.5], 30)[:, 0], geometric([0.1], 30)[:, 0], torch.full((31,), 0.3, dtype=torch.float64)], 1
    )
    found = steps_to(errors, 1.01e-3)
    assert found.steps == (10, 3, None) and found.reached == 2 and found.median == 10
    assert found.floors[2] == 0.3
    assert str(found) == "1.0e-03: 3 to 10 steps; never on 1 of 3, floor = 3.0e-01"
    assert str(steps_to(errors[:, 2:], 1e-3)) == "1.0e-03: never, floor = 3.0e-01"
    assert steps_to(errors[:, 2:], 1e-3).median is None
    assert str(steps_to(errors[:, :1], 1e-3)) == "1.0e-03: 10 steps"
    assert steps_to(torch.tensor([[torch.inf], [1.0]]), 2.0).steps == (1,)
    assert found.to_dict()["steps"] == (10, 3, None)


def test_estimates_print():
    text = str(order(powers(2.0, 5, torch.tensor([0.4, 0.3]))))
    assert text.startswith("order 2 [2, 2] (95 %, prompts resampled; ") and "of 2 prompts, errors 4.0e-01 to" in text
    assert order(powers(2.0, 5, torch.tensor([0.4]))).to_dict()["name"] == "order"


def test_trajectory():
    problem = squares()
    exact = torch.linalg.pinv(problem.A) @ problem.C
    errors = trajectory(iterate(GradientDescent(), problem, 3), exact)
    assert torch.equal(errors[0], torch.ones(3).double())
    by_hand = np.linalg.norm(iterate(GradientDescent(), problem, 3)[3, 1] - exact[1]) / np.linalg.norm(exact[1])
    assert float(errors[3, 1]) == pytest.approx(float(by_hand), rel=1e-12)


REFUSED = {
    "NaN": (lambda: order(torch.tensor([[0.5], [float("nan")], [0.1]])), r"prompt 0 at step 1 is nan; leave that"),
    "negative": (lambda: rate(torch.tensor([[0.5], [-0.1]])), r"prompt 0 at step 1 is -0.1"),
    "NaN, steps": (lambda: steps_to(torch.tensor([[0.5], [float("nan")]]), 0.1), r"steps_to: errors are at least 0"),
    "one step": (lambda: steps_to(torch.ones(1, 2), 0.1), r"at least two steps, got \[1, 2\]"),
    "constant": (lambda: order(torch.full((5, 2), 0.3)), r"do not change from step to step, so they have no order"),
    "zeros": (lambda: order(torch.zeros(5, 2)), r"order: no prompt has two points between the floor"),
    "zeros, rate": (lambda: rate(torch.zeros(5, 2)), r"rate: no prompt has two points between the floor"),
    "tolerance": (lambda: steps_to(torch.ones(3, 2), 0.0), r"tolerance=0.0 must be positive and finite"),
    "resamples": (
        lambda: order(powers(2.0, 5, torch.tensor([0.4, 0.3])), resamples=0),
        r"order: resamples=0 must be a",
    ),
    "resamples, rate": (lambda: rate(geometric([0.5, 0.4], 9), resamples=-1), r"rate: resamples=-1 must be a whole"),
    "integers": (lambda: trajectory(torch.ones(2, 3, 4).long(), torch.ones(3, 4).long()), r"of torch.int64"),
    "one for all": (
        lambda: trajectory(torch.ones(2, 3, 4), torch.ones(1, 4)),
        r"same shape, got \[2, 3, 4\] .* \[1, 4\]",
    ),
    "no step": (lambda: trajectory(torch.ones(3), torch.ones(3)), r"iterates must be floats \[step, batch, …\]"),
    "solution": (lambda: trajectory(torch.ones(2, 1, 2, 1), torch.zeros(1, 2, 1)), r"a solution is 0"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_sentence(name: str):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()
