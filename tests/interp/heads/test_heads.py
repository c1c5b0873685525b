"""read_heads on networks whose kernels are known, on planted scores and MLPs, and on networks that know nothing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from interp.covariance import Covariance
from interp.heads import Points, attention, read_heads
from interp.heads.mlps import explained, feature_sets, quadratic
from interp.heads.operator import fit_operator
from interp.heads.ratios import distance, held_out, r2
from interp.heads.scores import fit_scores
from interp.hooks import capture, hook_name
from interp.kernels import AttentionKernel
from models.constructions import PromptShape
from models.constructions.richardson import richardson
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer, TransformerConfig

FAMILY = GaussianProcess(n=8, d=2, lengthscale=0.4, lam=0.3)
ONE = GaussianProcess(n=8, lengthscale=0.4, lam=0.3)
SOFTMAX = AttentionKernel("exp", "sum", "sqrt_d_head")


def network(family: GaussianProcess, kernel: AttentionKernel = SOFTMAX, **options) -> HookedTransformer:
    width = sum(family.widths)
    settings = {"n_layers": 2, "n_heads": 2, "d_model": 8, "d_head": 4, "attn_only": False, "d_mlp": 12, **options}
    cfg = TransformerConfig(**settings, kernel=kernel, use_biases=True, d_in=width, d_out=1)
    return HookedTransformer(cfg, family.layout()).double()


def built(bandwidth: float = 0.4):
    """The Richardson network and prompts it is sized for."""
    prompts = FAMILY.sample(24, seed=0)
    y_max = float(prompts.C.abs().max())
    return richardson(PromptShape(d=2, n=8), FAMILY.lam, bandwidth, steps=2, m=8, y_max=y_max), prompts


def test_the_kernel_of_the_built_network_is_recovered():
    construction, prompts = built(0.55)
    true = Covariance("rbf", 0.55)
    report = read_heads(construction.model, prompts, true, FAMILY.lam, tokens=construction.tokens(prompts))
    assert {head.route for head in report.heads} == {"context → points", "query → points"}
    for head in report.heads:
        best = head.scores.best
        assert best.name == "gaussian" and best.bandwidth == pytest.approx(0.55, abs=1e-10)
        assert best.score.value == pytest.approx(1, abs=1e-10)
        assert head.operator.true.value < 1e-10 and head.operator.best["rbf"].lengthscale == pytest.approx(0.55, 1e-4)
        assert head.operator.uniform.value > 0.3 and head.operator.best["laplace"].score.value > 0.02
        assert head.untrained_scores.best.score.value < 0.9 and head.untrained_operator.true.value > 0.3
    context, query = report.heads[0].operator.mass, report.heads[1].operator.mass
    assert 0.5 < context < 1 and 0.5 < query < 1  # the rest lies on BOS, p = λ/(D + λ)
    D = true(prompts.A, prompts.A).sum(-1)
    assert context == pytest.approx((D / (D + FAMILY.lam)).mean().item(), abs=1e-10)
    assert not report.decodable and "1 token in front" in report.notes[0]


def test_a_wrong_kernel_is_at_its_distance():
    construction, prompts = built()
    report = read_heads(construction.model, prompts, Covariance("rbf", 0.2), 0.3, tokens=construction.tokens(prompts))
    assert report.heads[0].scores.best.bandwidth == pytest.approx(0.4, abs=1e-10)
    assert report.heads[0].operator.true.value > 0.1
    assert report.heads[0].operator.best["rbf"].lengthscale == pytest.approx(0.4, rel=1e-4)


def test_scores_are_made_of_q_and_k():
    prompts = ONE.sample(3, seed=0)
    for kernel in (SOFTMAX, AttentionKernel("gaussian", "sum"), AttentionKernel(scale="n")):
        model = network(ONE, kernel)
        for layer, (scores, pattern) in enumerate(attention(model, prompts.tokens, model.layout)):
            names = [f"blocks.{layer}.attn.hook_attn_scores", hook_name("pattern", layer)]
            theirs = capture(model, prompts.tokens, names)
            torch.testing.assert_close(scores, theirs[names[0]])
            torch.testing.assert_close(pattern, theirs[names[1]])


def route(family: GaussianProcess = FAMILY, count: int = 40):
    return Points.of(family.sample(count, seed=0), family.layout()).routes()[0]


def test_planted_scores_are_recovered_whatever_the_constants_of_rows():
    way, everything = route(), torch.ones(8, 8).bool()
    gap = (way.row_x[:, :, None] - way.key_x[:, None]).norm(dim=-1)
    rows = 50 * torch.randn(40, 8, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    laplace = fit_scores(way, rows - gap / 0.25, everything)
    assert laplace.best.name == "laplace" and laplace.best.bandwidth == pytest.approx(0.25, abs=1e-10)
    product = fit_scores(way, rows + 3 * way.row_x @ way.key_x.mT, everything)
    assert product.best.name == "product" and product.best.slope == pytest.approx(3, abs=1e-10)
    assert product.best.bandwidth is None and product.keys.value < 0.2
    keyed = fit_scores(way, rows + way.key_terms[:, None, :, -1].expand(-1, 8, -1), everything)
    assert keyed.keys.value == pytest.approx(1, abs=1e-9) and keyed.best.score.value < 0.2
    repelled = fit_scores(way, gap.square(), everything).forms[0]
    assert repelled.slope == pytest.approx(-2, abs=1e-10) and repelled.bandwidth is None


def test_squared_distance_and_product_are_one_form_beside_key_terms():
    way, everything = route(), torch.ones(8, 8).bool()
    fit = fit_scores(way, 2 * way.row_x @ way.key_x.mT, everything)
    gaussian = fit_scores(way, -(way.row_x[:, :, None] - way.key_x[:, None]).square().sum(-1), everything)
    assert fit.with_keys.value == pytest.approx(1, abs=1e-9) == gaussian.with_keys.value
    assert fit.forms[0].score.value < 0.95


def test_score_fits_are_scikit_learns_on_centred_columns_under_a_mask():
    way, mask = route(), torch.ones(8, 8).tril().bool()
    scores = torch.randn(40, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores += 2 * way.row_x @ way.key_x.mT
    columns = []
    for column in (way.row_x @ way.key_x.mT, scores):
        mean = torch.stack([column[:, i, : i + 1].mean(-1) for i in range(8)], 1)
        columns.append((column - mean[..., None])[:, mask].numpy())
    x, y = columns
    test = held_out(40)
    theirs = LinearRegression(fit_intercept=False).fit(x[: test.start].reshape(-1, 1), y[: test.start].ravel())
    left = y[test].ravel() - theirs.predict(x[test].reshape(-1, 1))
    found = fit_scores(way, scores, mask).forms[2]
    assert found.slope == pytest.approx(theirs.coef_[0], abs=1e-10)
    assert found.score.value == pytest.approx(1 - (left**2).sum() / (y[test] ** 2).sum(), abs=1e-10)


def test_a_planted_operator_and_one_that_is_no_softmax():
    way, everything = route(), torch.ones(8, 8).bool()
    K = Covariance("laplace", 0.3)(way.row_x, way.key_x)
    S = K / K.sum(-1, keepdim=True)
    found = fit_operator(way, 0.5 * S, everything, Covariance("rbf", 0.4), True)
    assert found.best["laplace"].lengthscale == pytest.approx(0.3, rel=1e-3)
    assert found.best["laplace"].score.value < 1e-3 < found.best["rbf"].score.value
    assert found.mass == pytest.approx(0.5, abs=1e-12)
    scaled = fit_operator(way, -7 * S, everything, Covariance("laplace", 0.3), False)
    assert scaled.true.value < 1e-10 and math.isnan(scaled.mass)
    equal = fit_operator(way, torch.ones(40, 8, 8).double(), everything, Covariance("rbf", 0.4), True)
    assert str(equal.best["rbf"]) == "≥6.4" and equal.best["rbf"].score.value < 0.02
    assert equal.true.value == pytest.approx(equal.uniform.value, abs=1e-12)


def test_ratios_and_their_jackknife():
    above, below = torch.tensor([1.0, 2.0, 3.0, 2.0]).double(), torch.tensor([10.0, 11.0, 9.0, 10.0]).double()
    found = r2(above, below)
    left_out = np.array([1 - (8 - a) / (40 - b) for a, b in zip(above.tolist(), below.tolist(), strict=True)])
    error = math.sqrt(3 / 4 * ((left_out - left_out.mean()) ** 2).sum())
    assert found.value == pytest.approx(0.8) and found.interval[1] - found.value == pytest.approx(3.18245 * error, 1e-4)
    assert distance(above, below).value == pytest.approx(0.2**0.5)
    assert distance(0 * above, below).interval == (0, 0)


def test_polynomials_are_complete_and_explain_what_they_span():
    values = torch.randn(40, 8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = quadratic(values)
    assert features.shape[-1] == 9 and quadratic(values, 3).shape[-1] == 19
    product = values[..., :1] * values[..., 2:] - 3 * values[..., 1:2]
    assert explained(features, product).value > 1 - 1e-6
    assert explained(values, product).value < 0.95
    assert abs(explained(features, values.roll(1, 0)).value) < 0.2


def test_an_mlp_that_multiplies_state_is_local_and_one_that_passes_attention_on_is_cross():
    points, kernel = Points.of(ONE.sample(120, seed=0), ONE.layout()), ONE.kernel
    features, _ = feature_sets(network(ONE), points, kernel, ONE.lam, 0)
    rows = points.kernel_rows(kernel, ONE.lam)
    local, cross = rows.share * points.y + points.x * rows.dual, features["cross"][..., :8]
    assert explained(features["state"], local).value > 1 - 1e-6 > explained(features["cross"], local).value
    assert explained(features["cross"], cross).value > 1 - 1e-6 > explained(features["state"], cross).value
    assert explained(features["state"], rows.fit).value > 1 - 1e-6  # Kα = y − λα


def test_an_untrained_network_is_no_kernel_and_its_report_is_complete():
    prompts = ONE.sample(64, seed=0)
    report = read_heads(network(ONE), prompts, ONE.kernel, ONE.lam)
    assert len(report.heads) == 2 * 2 * 2 and [fit.layer for fit in report.mlps] == [0, 1]
    assert min(head.operator.true.value for head in report.heads) > 0.3
    assert report.decodable["label"].report.layers[0].score.value > 0.99
    assert report.decodable["row-sums"].by_depth is None and report.decodable["label"].by_depth is None
    text, values = str(report), json.loads(json.dumps(report.to_dict()))
    assert "context → points" in text and "MLP outputs follow" in text and "own token" in text
    assert len(values["heads"]) == 8 and set(values["decodable"]) == {"row-sums", "kernel-dual", "label"}
    assert all(abs(fit.shuffled.value) < 0.5 for fit in report.mlps)


def test_linear_attention_has_no_softmax_and_says_so():
    model = network(ONE, AttentionKernel(scale="n"), n_layers=1, n_heads=1, attn_only=True, d_mlp=None)
    report = read_heads(model, ONE.sample(32, seed=0), ONE.kernel, ONE.lam)
    assert any("there is no softmax" in note and "not row-stochastic" in note for note in report.notes)
    assert math.isnan(report.heads[0].operator.mass) and not report.mlps
    assert "no shares" in str(report) and "the model has no MLPs" in str(report)


def test_alternating_prompts_have_four_routes_and_causal_quantities():
    family = replace(ONE, token_format="alternating", n=5)
    model = network(family, n_layers=1, positional_embedding_type="standard", n_ctx=11)
    report = read_heads(model, family.sample(32, seed=0), family.kernel, family.lam)
    assert [head.route for head in report.heads[:4]] == [
        "inputs → inputs", "inputs → labels", "labels → inputs", "labels → labels",
    ]  # fmt: skip
    masses = [head.operator.mass for head in report.heads if head.head == 0]
    assert masses[0] + masses[1] > 0.9  # rows of labels that see only themselves have no inputs' share missing
    assert report.decodable["row-sums"].report.reading == "rows of label"
    assert any("causal" in note for note in report.notes)


def test_points_of_both_formats_are_the_same():
    pair = Points.of(ONE.sample(3, seed=0), ONE.layout())
    family = replace(ONE, token_format="alternating")
    other = Points.of(family.sample(3, seed=0), family.layout())
    assert torch.equal(pair.x, other.x) and torch.equal(pair.y, other.y) and torch.equal(pair.queries, other.queries)
    assert other.alternating and not pair.alternating and pair.first == other.first == 0
    assert torch.equal(other.tokens[:, other.at, 1:], other.y) and torch.equal(pair.tokens[:, pair.at, 1:], pair.y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lam": 0.0}, "lam=0.0 is the variance of the noise and must be positive"),
        ({"prompts": ONE.sample(8, seed=0)}, "8 prompts of 8 points; give at least 16 of 2 points each"),
        ({"prompts": replace(ONE, n=1).sample(20, seed=0)}, "20 prompts of 1 points"),
        ({"prompts": torch.zeros(20, 9, 2)}, "have no A; give GaussianProcess"),
        ({"tokens": torch.zeros(20, 5, 2)}, "are not those of the prompts"),
    ],
)
def test_bad_input_is_refused(change, message):
    given = {"prompts": ONE.sample(20, seed=0), "lam": 0.3, "tokens": None, **change}
    with pytest.raises(ValueError, match=message):
        read_heads(network(ONE), given["prompts"], ONE.kernel, given["lam"], tokens=given["tokens"])
