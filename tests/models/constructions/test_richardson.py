"""The Richardson network: tokens, refusals, and the variants that compute something else."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from interp.hooks import capture, hook_name
from models.constructions import Construction, PromptShape, richardson
from models.prompts import GaussianProcess
from models.prompts.value import Prompts

N, LAM, WIDTH, M, STEPS = 8, 2.0, 0.4, 256, 6
PROCESS = GaussianProcess(n=N, d=2, n_query=3, lengthscale=WIDTH, lam=0.05)
PROMPTS = PROCESS.sample(6, seed=0)
SHAPE = PromptShape(2, n_query=3, n=N)


def network(steps: int = STEPS, **options) -> Construction:
    return richardson(SHAPE, **{"lam": LAM, "bandwidth": WIDTH, "steps": steps, "m": M, "y_max": 5.0, **options})


def descent(A: Tensor, B: Tensor, y: Tensor, lam: float, steps: int, shift: float, omega: float = 1.0) -> Tensor:
    """The answers of α ← α + ω P⁻¹(y − (K + λI) α), written as scalars are."""
    K, across = PROCESS.kernel(A, A), PROCESS.kernel(B, A)
    alpha = torch.zeros_like(y)
    for _ in range(steps):
        alpha = alpha + omega * (y - K @ alpha - lam * alpha) / (K.sum(-1, keepdim=True) + shift)
    return across @ alpha


@pytest.mark.parametrize("omega", [0.6, 1.0, 1.3])
def test_a_block_is_a_step(omega: float):
    found = network(omega=omega).predict(PROMPTS)
    expected = descent(PROMPTS.A, PROMPTS.B, PROMPTS.C, LAM, STEPS, LAM, omega)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_the_first_token_is_bos_and_stays_blank():
    construction = network()
    tokens, layout = construction.tokens(PROMPTS), construction.model.layout
    assert tokens.shape[1] == 1 + N + 3 and layout.n_context(tokens.shape[1]) == N + 1
    names = [hook_name("resid_post", layer) for layer in range(STEPS + 1)]
    alpha = layout.slices["alpha"]
    for z in capture(construction.model, tokens, names).values():
        assert z[:, 0, alpha].abs().max() < 1e-12 < z[:, 1, alpha].abs().max()


def test_the_weight_on_bos_is_p():
    construction = network()
    pattern = capture(construction.model, construction.tokens(PROMPTS), [hook_name("pattern", 0)])[
        hook_name("pattern", 0)
    ]
    D = PROCESS.kernel(PROMPTS.A, PROMPTS.A).sum(-1)
    torch.testing.assert_close(pattern[:, 0, 1 : N + 1, 0], LAM / (D + LAM), rtol=1e-12, atol=1e-12)


def test_fewer_points_than_it_is_sized_for():
    few = GaussianProcess(n=3, d=2, n_query=3, lengthscale=WIDTH).sample(5, seed=1)
    expected = descent(few.A, few.B, few.C, LAM, STEPS, LAM)
    torch.testing.assert_close(network().predict(few), expected, rtol=0, atol=2e-3)


def test_tracked_holds_the_answer_after_l_steps_at_layer_l():
    construction = network(tracked=True)
    names = [hook_name("resid_post", layer) for layer in range(STEPS + 1)]
    stream = capture(construction.model, construction.tokens(PROMPTS), names)
    for layer, name in enumerate(names):
        found = construction.model.layout.predict(stream[name])
        expected = descent(PROMPTS.A, PROMPTS.B, PROMPTS.C, LAM, layer, LAM)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_untracked_holds_nothing_before_the_last_block():
    construction = network()
    name = hook_name("resid_post", STEPS - 1)
    stream = capture(construction.model, construction.tokens(PROMPTS), [name])[name]
    assert not construction.model.layout.predict(stream).any()


def test_under_a_causal_mask_the_lower_triangle_is_solved():
    K = PROCESS.kernel(PROMPTS.A, PROMPTS.A)
    system = K.tril() + LAM * torch.eye(N, dtype=torch.float64)
    alpha = torch.linalg.solve_triangular(system, PROMPTS.C, upper=False)
    expected = PROCESS.kernel(PROMPTS.B, PROMPTS.A) @ alpha
    torch.testing.assert_close(network(30, causal=True).predict(PROMPTS), expected, rtol=0, atol=2e-3)


def with_isolated_point(prompts: Prompts) -> Prompts:
    tokens = prompts.tokens.clone()
    tokens[:, 0, :2] = 6.0
    return replace(prompts, tokens=tokens)


def test_without_lambda_in_the_preconditioner_an_isolated_point_diverges():
    prompts = with_isolated_point(PROMPTS)
    tokens, layer = network().tokens(prompts), hook_name("resid_post", 11)
    sizes = {}
    for shift in (None, 1e-6):
        model = network(12, shift=shift, alpha_max=1e4 if shift else None).model
        alpha = capture(model, tokens, [layer])[layer][:, 1, model.layout.slices["alpha"]]
        sizes[shift] = (alpha.abs() / PROMPTS.C[:, 0].abs()).max().item()
    assert sizes[None] < 1 and 2**10 < sizes[1e-6] < 2**12  # |1 − (1 + λ)|^k, λ = 2


def test_a_small_shift_follows_its_own_iteration():
    found = network(4, shift=1e-3, m=512, alpha_max=20.0).predict(PROMPTS)
    expected = descent(PROMPTS.A, PROMPTS.B, PROMPTS.C, LAM, 4, 1e-3)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_float32_loses_little():
    construction = network(m=512)
    exact, tokens = construction.predict(PROMPTS), construction.tokens(PROMPTS.to(dtype=torch.float32))
    found = construction.model.float().predict(tokens)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lam": 0.0}, "λ must be positive"),
        ({"lam": -1.0}, "λ must be positive"),
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"y_max": float("inf")}, "y_max must be positive and finite"),
        ({"shift": -1.0}, "shift must be positive"),
        ({"omega": 2.0}, "omega=2.0 must lie between 0 and 2"),
        ({"m": 7}, "m an even one"),
        ({"steps": 0}, "steps must be a whole number"),
    ],
)
def test_settings_outside_are_refused(options, said: str):
    with pytest.raises(ValueError, match=said):
        network(**options)


def test_a_shape_must_state_the_number_of_points():
    with pytest.raises(ValueError, match="state n"):
        richardson(PromptShape(2), LAM, WIDTH, STEPS, M, 5.0)


def test_prompts_beyond_its_size_are_refused_with_the_size_that_would_do():
    with pytest.raises(ValueError, match=r"9 context points.*sized for 8; build it for n=9"):
        network().tokens(GaussianProcess(n=9, d=2, n_query=3).sample(2, seed=0))
    largest = PROMPTS.C.abs().max().item()
    with pytest.raises(ValueError, match=r"labels reach .* y_max="):
        network(y_max=0.9 * largest).tokens(PROMPTS)
    with pytest.raises(ValueError, match=r"row sums .* d_max="):
        network(d_max=1.1).tokens(PROMPTS)
