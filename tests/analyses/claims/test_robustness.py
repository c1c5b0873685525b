"""The claim robustness at small sizes: ridge regressions by scikit-learn, and answers that are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge

from analyses.claims import diabetes, robustness
from analyses.claims.cached_case import CachedCase, worse_seed
from analyses.claims.claim import Measurement, Settings
from analyses.claims.criteria.consequences import CONSEQUENCES
from interp.covariance import Covariance
from tests.analyses.claims.processes import FAMILY, small_model

SETTINGS = Settings(seed=3)


def scikit_ridge(case: CachedCase, covariance: Covariance, lam: float, prompt: int) -> np.ndarray:
    """KRR of one prompt by scikit-learn, from kernel matrices written out."""
    sample = case.prompts
    x, queries = sample.A[prompt, :, 0], sample.B[prompt, :, 0]
    gaps = [abs(rows[:, None] - x).numpy() / covariance.lengthscale for rows in (x, queries)]
    form = {"rbf": lambda r: np.exp(-(r**2) / 2), "matern12": lambda r: np.exp(-r)}[covariance.name]
    fitted = KernelRidge(alpha=lam, kernel="precomputed").fit(form(gaps[0]), sample.C[prompt].numpy())
    return fitted.predict(form(gaps[1]))[:, 0]


def test_answers_are_those_of_prompts_of_one_query():
    case, model = CachedCase.fresh(replace(FAMILY, n_query=3), 4, SETTINGS), small_model()
    found = case.answers(model)
    single = torch.cat([case.prompts.tokens[2, : FAMILY.n], case.prompts.tokens[2, FAMILY.n + 1 : FAMILY.n + 2]])
    assert found[2, 1].item() == pytest.approx(model.predict(single[None]).item(), rel=1e-10)


def test_distances_are_from_the_ridge_regressions_of_both_kernels():
    """An answer that is one of them is at distance 0 from it, and at their gap from the other."""
    task = robustness.kernels(FAMILY)["Matérn ½"]
    case = CachedCase.fresh(replace(task, n_query=3), 4, SETTINGS)
    training = CachedCase(FAMILY, case.prompts).ridge
    for prompt in range(4):
        np.testing.assert_allclose(
            training[prompt], scikit_ridge(case, FAMILY.kernel, FAMILY.lam, prompt), rtol=1e-8, atol=1e-10
        )
        np.testing.assert_allclose(
            case.ridge[prompt], scikit_ridge(case, task.kernel, task.lam, prompt), rtol=1e-8, atol=1e-10
        )
    keeps, adapts = (robustness.distances(case, training, answers) for answers in (training, case.ridge))
    assert keeps.keeps and keeps.training == 0 and keeps.data == keeps.apart
    assert not adapts.keeps and adapts.data == 0 and adapts.training == adapts.apart > 0.01
    assert keeps.errors["model"] == keeps.errors["training"] == case.errors(training).mean().item()


def test_a_kernel_counts_where_all_seeds_keep_to_their_own():
    near, far = (robustness.Distances(training, 0.2, 0.3, {}) for training in (0.1, 0.3))
    other = {"both": {0: near, 1: near}, "one": {0: near, 1: far}, "none": {0: far, 1: far}}
    assert robustness._kernels(other, "").value == 1


def test_patients_fill_the_range_of_training():
    x, y = diabetes.patients()
    raw = load_diabetes(scaled=False, as_frame=True).frame
    assert x.min() == -1 and x.max() == 1 and x.shape == y.shape == (442, 1)
    assert np.corrcoef(x[:, 0], raw["bmi"])[0, 1] == pytest.approx(1, abs=1e-12)
    assert y.mean().item() == pytest.approx(0, abs=1e-12) and y.square().mean().item() == pytest.approx(1, rel=1e-12)


def test_prompts_are_of_different_patients_and_ask_for_the_last():
    case = diabetes.diabetes(FAMILY, 20, SETTINGS)
    sample, (x, y) = case.prompts, diabetes.patients()
    pairs = {(a, b) for a, b in torch.cat([x, y], dim=1).tolist()}
    assert sample.tokens.shape == (20, FAMILY.n + 1, 2) and (sample.tokens[:, -1, 1] == 0).all()
    for prompt in sample.full.tolist():
        assert all(tuple(row) in pairs for row in prompt)
    assert not torch.equal(sample.tokens[0], sample.tokens[1])
    np.testing.assert_allclose(case.ridge[5], scikit_ridge(case, FAMILY.kernel, FAMILY.lam, 5), rtol=1e-8, atol=1e-10)


def test_look_alikes_differ_from_training_in_one_thing_each():
    real = diabetes.diabetes(FAMILY, 4000, SETTINGS)
    inputs, noisy = (case.prompts for case in diabetes.look_alikes(real, 0.7, SETTINGS).values())
    assert torch.equal(inputs.tokens[..., 0], real.prompts.tokens[..., 0])
    assert inputs.C.square().mean().item() == pytest.approx(1 + FAMILY.lam, rel=0.06)
    assert noisy.C.square().mean().item() == pytest.approx(1.7, rel=0.06)
    assert noisy.A.square().mean().item() == pytest.approx(1 / 3, rel=0.03)


def test_every_criterion_is_measured_on_the_worse_seed():
    models = {seed: small_model(seed) for seed in range(2)}
    findings = robustness.measure(SETTINGS, models, FAMILY, prompts=16, draws=64)
    assert set(findings.measurements) == set(CONSEQUENCES["robustness"])
    real = findings.details["real"]
    worst = max(real["0"], real["1"]) / real[f"KRR, λ = {FAMILY.lam:g}"]
    assert findings.measurements["real"].value == pytest.approx(worst, rel=1e-10)
    case = diabetes.diabetes(FAMILY, 64, SETTINGS)
    gaps = [((case.answers(model) - case.ridge).norm() / case.ridge.norm()).item() for model in models.values()]
    assert findings.measurements["real-distance"].value == pytest.approx(max(gaps), rel=1e-10)
    assert set(findings.details["kernels"]) == set(robustness.kernels(FAMILY))
    assert "by seed" in findings.measurements["real"].note


def test_the_worse_seed_is_the_one_with_the_larger_value():
    found = worse_seed({0: Measurement.exact(1.0, "a"), 1: Measurement.exact(2.0, "b")})
    assert found.value == 2 and found.note == "by seed 0: 1, 1: 2; b"
