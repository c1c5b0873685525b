"""The claims on softmax kernel solvers at small sizes: what they measure, by another road."""

from dataclasses import replace

import pytest
import torch

from analyses.claims import (
    clustered_contrast,
    early_exit,
    kernel_swap,
    richardson_alignment,
    richardson_failures,
    richardson_laws,
    softmax_to_linear,
)
from analyses.claims.claim import Settings
from analyses.claims.criteria.processes import PROCESSES
from analyses.claims.process_case import ProcessCase, ratio
from analyses.claims.process_comparison import Sizes
from interp.ablation import swap_kernel
from interp.gaussian_process import kernel_system
from interp.kernels import AttentionKernel
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer
from tests.analyses.claims.processes import FAMILY, small_model

SETTINGS = Settings(seed=2)
TINY = Sizes(groups=2, train=16, test=8, steps=8)


def test_errors_of_the_iteration_are_those_of_its_eigenvectors():
    """k_q (I − P⁻¹(K + λI))^k α* by an eigendecomposition of the symmetric form."""
    sizes = richardson_laws.Sizes(prompts=3)
    found = richardson_laws.largest_errors(5, 0.5, sizes, SETTINGS, 8)
    prompts, kernel = richardson_laws.drawn(5, 0.5, 3, SETTINGS), GaussianProcess().kernel
    system = kernel_system(kernel, 0.5, prompts.A, prompts.C)
    root = (system.K.sum(-1) + 0.5).rsqrt()[..., None]
    values, vectors = torch.linalg.eigh(root * system.G * root.mT)
    start = vectors.mT @ (system.solve(system.y) / root)
    for step in (0, 1, 7):
        alpha = root * (vectors @ ((1 - values[..., None]) ** step * start))
        expected = (kernel(prompts.B, prompts.A) @ alpha).abs().amax((1, 2))
        torch.testing.assert_close(found[step], expected, rtol=1e-10, atol=1e-13)


def test_a_geometric_sequence_is_straight_and_takes_as_many_steps_as_it_should():
    steps = torch.arange(200, dtype=torch.float64)[:, None].expand(-1, 4)
    fast, slow = 0.5**steps, 0.8**steps
    assert richardson_laws._straightness(fast, "").value == pytest.approx(1, abs=1e-12)
    assert richardson_laws._straightness(fast + 1e-3 * slow, "").value < 0.99
    grown = richardson_laws._growth({16: fast, 128: slow}, richardson_laws.Sizes(), "")
    assert grown.value == 31 / 10  # 0.8^31 < 1e-3 < 0.8^30 and 0.5^10 < 1e-3 < 0.5^9


def test_a_step_that_raises_the_error_is_counted():
    x = torch.linspace(-1, 1, 4, dtype=torch.float64)[None, :, None]
    system = kernel_system(GaussianProcess().kernel, 0.1, x, x)
    solution = system.solve(system.y)
    falls, rises = (torch.stack([solution * (1 + factor**step) for step in range(4)])[:, :1] for factor in (0.5, 1.1))
    assert not richardson_failures._rises(system, falls).any() and richardson_failures._rises(system, rises).all()


def test_small_laws_answer_every_criterion():
    sizes = richardson_laws.Sizes(32, 8, (4, 8), (8, 16), 16, (4, 8), 40)
    found = richardson_laws.measure(SETTINGS, sizes).measurements
    assert set(found) == set(PROCESSES["richardson-laws"])
    assert found["never-diverges"].value == 0 and found["blocks"].value == 1


def test_the_same_kernel_changes_nothing_and_linear_is_the_linear_model():
    case, model = ProcessCase.draw(FAMILY, 6, SETTINGS), small_model()
    own = case.errors(case.answers(model))
    same = kernel_swap.swapped_errors(case, model, "softmax", None)
    torch.testing.assert_close(same, own, rtol=1e-10, atol=1e-12)
    cfg = replace(model.cfg, kernel=AttentionKernel("linear", scale="sqrt_d_head"))
    linear = HookedTransformer.from_weights(cfg, model.layout, model.state_dict())
    other = kernel_swap.swapped_errors(case, model, "linear", None)
    torch.testing.assert_close(other, case.errors(case.answers(linear)), rtol=1e-10, atol=1e-12)
    assert (other - own).abs().max() > 1e-6


def test_hooks_that_edit_a_model_act_while_it_is_measured_and_not_after():
    def measured(**options: object) -> torch.Tensor:
        return kernel_swap.comparison.distances(model, FAMILY, ("CG",), TINY, SETTINGS, **options).to_krr

    model = small_model()
    own = measured()
    edited = measured(edits=lambda wide: swap_kernel(wide, "uniform").hooks())
    assert (edited - own).abs().max() > 1e-3
    assert torch.equal(measured(), own)


def test_ratios_of_retrained_models_are_of_the_nearest_pair():
    case = ProcessCase.draw(FAMILY, 16, SETTINGS)
    softmax, linear = ({seed: small_model(seed + first) for seed in (0, 1)} for first in (0, 5))
    found = softmax_to_linear.compare(case, softmax, linear, "", SETTINGS)
    means = [[case.errors(case.answers(m)).mean().item() for m in by.values()] for by in (linear, softmax)]
    assert found["retrained"].value == pytest.approx(min(means[0]) / max(means[1]), rel=1e-12)
    assert ratio(case.errors(case.ridge) * 2, case.errors(case.ridge), "", SETTINGS).value == pytest.approx(2)


def test_answers_of_another_shape_are_refused():
    case = ProcessCase.draw(FAMILY, 3, SETTINGS)
    with pytest.raises(ValueError, match="answers"):
        case.errors(torch.zeros(3, FAMILY.n + 1, dtype=torch.float64))


def test_the_last_exit_is_the_model_and_its_layers_cost_what_they_do():
    model = small_model()
    found = early_exit.by_depth(model, early_exit.Sizes(8, 4), SETTINGS)
    assert {errors.shape for errors in found.values()} == {(4, 4)}
    halves = early_exit.saved(model, 2), early_exit.saved(model, 0)
    assert halves[0].value == pytest.approx(halves[1].value / 2) and 0.9 < halves[1].value < 1
    errors = {0: {"own read-out": torch.tensor([[4.0], [1.005], [2.0], [1.0]]).expand(-1, 3).double()}}
    assert early_exit._fewest(errors, "own read-out", "").value == 2


def test_clustered_contrast_of_a_small_model_is_that_of_its_cosines():
    found = clustered_contrast.cosines(small_model(), FAMILY, TINY, SETTINGS)
    assert {len(values) for values in found.values()} == {2}
    assert all(((values <= 1) & (values >= -1)).all() for values in found.values())


def test_no_solver_is_named_for_random_networks():
    found = richardson_alignment.untrained(small_model(), Sizes(2, 32, 16, 16), SETTINGS, count=1)
    assert found.value == 0
