"""Targets of kernel ridge regression, one a row, in both token formats and under a causal mask."""

from dataclasses import replace

import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from interp.covariance import Covariance
from interp.hooks import hook_name
from interp.kernel_rows import KernelRows, sees_the_past
from interp.layout import BlockLayout, Visibility
from interp.probes import Reading, probe, probe_all
from interp.probes.targets import TARGETS, Blocks, alternates
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer, TransformerConfig

FAMILY = GaussianProcess(n=8, lengthscale=0.5, lam=0.2)
ALTERNATING = replace(FAMILY, token_format="alternating")
STREAM = hook_name("resid_pre", 0)


def blocks(family: GaussianProcess, count: int = 4) -> Blocks:
    return Blocks.of(family.sample(count, seed=0).tokens, family.layout(), family.lam, family.kernel)


def model(family: GaussianProcess) -> HookedTransformer:
    cfg = TransformerConfig(1, 1, 8, 8, attn_only=False, d_mlp=16, d_in=2, d_out=1, use_biases=True)
    return HookedTransformer(cfg, family.layout()).double()


def test_values_are_those_of_scikit_learn():
    found, prompts = blocks(FAMILY), FAMILY.sample(4, seed=0)
    for prompt in range(4):
        x, y = prompts.A[prompt].numpy(), prompts.C[prompt].numpy()
        theirs = KernelRidge(alpha=FAMILY.lam, kernel="rbf", gamma=1 / (2 * 0.5**2)).fit(x, y)
        alpha, answer = (torch.from_numpy(part) for part in (theirs.dual_coef_, theirs.predict(prompts.B[prompt])))
        torch.testing.assert_close(TARGETS["kernel-dual"](found)[prompt], alpha, rtol=0, atol=1e-10)
        torch.testing.assert_close(TARGETS["kernel-prediction"](found)[prompt], answer, rtol=0, atol=1e-10)
    torch.testing.assert_close(TARGETS["row-sums"](found)[..., 0], FAMILY.kernel(prompts.A, prompts.A).sum(-1))
    assert torch.equal(TARGETS["label"](found), prompts.C)


def test_under_a_causal_mask_a_row_solves_the_system_of_its_past():
    found, prompts = blocks(ALTERNATING), FAMILY.sample(4, seed=0)
    assert found.causal and torch.equal(found.A, prompts.A) and torch.equal(found.C, prompts.C)
    for n in range(1, 9):
        x, y = prompts.A[:, :n], prompts.C[:, :n]
        past = KernelRows(x, y, FAMILY.kernel, FAMILY.lam)
        for name, value in (("kernel-dual", past.dual), ("row-sums", past.row_sums)):
            torch.testing.assert_close(TARGETS[name](found)[:, n - 1], value[:, -1], rtol=0, atol=1e-10)


def test_sums_and_shares():
    rows = blocks(FAMILY).kernel_rows
    torch.testing.assert_close(rows.fit, rows.K @ rows.dual, rtol=0, atol=1e-12)
    torch.testing.assert_close(rows.smoothed_labels, rows.K @ rows.y)
    torch.testing.assert_close(rows.share, 0.2 / (rows.K.sum(-1, keepdim=True) + 0.2))


def test_formats_and_masks_are_recognised():
    assert alternates(ALTERNATING.sample(2, seed=0).tokens, ALTERNATING.layout())
    assert not alternates(FAMILY.sample(2, seed=0).tokens, FAMILY.layout())
    mixed = (Visibility("causal", "causal"), Visibility())
    assert sees_the_past(ALTERNATING.layout()) and not sees_the_past(FAMILY.layout())
    assert not sees_the_past(BlockLayout.standard(x=1, y=1, visibility=mixed))


def test_a_linear_read_in_holds_labels_and_no_row_sums():
    settings = {"covariance": FAMILY.kernel, "ridge": FAMILY.lam}
    prompts = FAMILY.sample(300, seed=1)
    found = probe_all(model(FAMILY), prompts, ["label", "row-sums", "kernel-dual"], STREAM, **settings)
    assert found["label"].layers[0].score.value > 0.999 and found["label"].reading == "rows of context"
    assert abs(found["row-sums"].layers[0].score.value) < 0.1
    assert 0.2 < found["kernel-dual"].layers[0].score.value < 0.95


def test_label_tokens_are_read_in_alternating_prompts():
    prompts = ALTERNATING.sample(100, seed=1)
    report = probe(model(ALTERNATING), prompts, "label", STREAM)
    assert report.reading == "rows of label" and report.layers[0].score.value > 0.999
    with pytest.raises(ValueError, match=r"no value for each of the context rows; targets that have: .*label rows"):
        probe(model(ALTERNATING), prompts, "label", STREAM, reading=Reading("rows", role="context"))


@pytest.mark.parametrize("target", ["row-sums", "kernel-dual", "kernel-prediction"])
def test_a_kernel_target_needs_its_covariance(target):
    with pytest.raises(ValueError, match="needs its covariance; give covariance=Covariance"):
        probe(model(FAMILY), FAMILY.sample(20, seed=0), target, STREAM)


def test_a_dual_target_needs_noise():
    with pytest.raises(ValueError, match=r"needs λ > 0, the variance of the noise: give ridge=…, got 0\.0"):
        probe(model(FAMILY), FAMILY.sample(20, seed=0), "kernel-dual", STREAM, covariance=Covariance())
    with pytest.raises(ValueError, match="under a causal mask need λ > 0"):
        _ = KernelRows(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), Covariance(), 0.0, causal=True).dual
