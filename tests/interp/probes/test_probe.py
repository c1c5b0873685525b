"""probe on models whose contents are known: constructions, parity of linear attention, controls, planted failures."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from interp.hooks import hook_name, run_with_hooks
from interp.layout import BlockLayout
from interp.probes import LayerScore, MLPProbe, Reading, eraser, probe, probe_all, randomised
from interp.probes.scores import BlockSums
from interp.probes.stream import odd_in_tokens
from interp.probes.targets import TARGETS, Blocks, least_squares
from models import zoo
from models.prompts import LogUniformSpectrum, family_from_dict
from tests.interp.probes.cases import LINEAR, eagle, linear_prompts, scalar_prompts, softmax

EVEN = ("w", "xty", "hessian")
LAST = hook_name("resid_post", 2)


def controls(layer: LayerScore) -> list[float]:
    return [layer.shuffled.value, layer.untrained.value, layer.prompt_only.value]


@pytest.mark.parametrize("reading", ["token", "pooled", "weighted"])
def test_a_linear_token_probe_of_linear_attention_reads_nothing(reading: str):
    reports = probe_all(eagle(), linear_prompts(1200), EVEN, reading=reading, alphas=[1e-4, 1.0])
    for report in reports.values():
        assert "odd in each token" in report.notes[0]
        assert [layer.depth for layer in report.layers] == [0, 1, 2, 3]
        for layer in report.layers:
            assert abs(layer.score.value) < 0.06 and max(map(abs, controls(layer)[:2])) < 0.06
            assert layer.prompt_features == "second moments" and not layer.above_controls


def test_what_the_readings_for_linear_attention_do_find():
    model, prompts = eagle(), linear_prompts(500)
    by_queries = probe(model, prompts, "w")
    scores = [layer.score.value for layer in by_queries.layers]
    assert by_queries.reading == "queries" and abs(scores[0]) < 0.05 and sorted(scores) == scores and scores[-1] > 0.99
    assert by_queries.layers[3].above_controls and not by_queries.layers[0].above_controls
    assert probe(model, prompts, "xty", [hook_name("resid_post", 0)]).layers[0].score.value > 0.999
    assert probe(model, prompts, "hessian", [hook_name("resid_pre", 0)]).layers[0].score.value > 0.999
    moments = probe(model, prompts, "xty", [hook_name("resid_pre", 0)], reading="second-moment").layers[0]
    assert moments.score.value > 0.999 and moments.prompt_only.value == pytest.approx(moments.score.value, abs=1e-9)


def test_rows_read_their_own_prediction_and_dual_coefficient():
    found = probe_all(eagle(), linear_prompts(500), ["prediction", "dual"])
    assert found["prediction"].reading == "rows of query" and found["dual"].reading == "rows of context"
    assert found["prediction"].layers[-1].score.value > 0.99 and found["prediction"].layers[-1].above_controls
    assert abs(found["prediction"].layers[0].score.value) < 0.05
    dual = found["dual"].layers[0]  # at depth 0 the stream is the prompt
    assert dual.score.value == pytest.approx(dual.prompt_only.value, abs=1e-9) and 0.2 < dual.score.value < 0.9
    assert found["dual"].columns == 2


def test_scores_are_those_of_scikit_learn_on_cached_activations():
    model, prompts = softmax(), scalar_prompts()
    hook = hook_name("resid_post", 1)
    report = probe(model, prompts, "w", [hook], reading="pooled", batch=37)
    _, cache = model.run_with_cache(prompts.tokens)
    X = cache[hook][:, :10].mean(1).detach().numpy()
    w = torch.linalg.lstsq(prompts.A, prompts.C).solution[..., 0].numpy()
    theirs = Ridge(report.layers[0].alpha).fit(X[:450], w[:450])
    assert report.layers[0].score.value == pytest.approx(theirs.score(X[450:], w[450:]), abs=1e-8)
    assert report.train == 450 and report.held_out == 150


def test_readings_agree_with_their_definitions():
    z = torch.randn(3, 10, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layout = LINEAR.layout()
    context, S = z[:, :8], torch.einsum("bti,btj->bij", z[:, :8], z[:, :8])
    torch.testing.assert_close(Reading("pooled").features(z, layout)[:, 0], context.mean(1))
    torch.testing.assert_close(Reading("token", 3).features(z, layout)[:, 0], z[:, 3])
    found = Reading("second-moment").features(z, layout)[:, 0]
    assert found.shape == (3, 21)
    torch.testing.assert_close(found[:, 1], S[:, 0, 1])
    torch.testing.assert_close(found[:, -1], S[:, 5, 5])
    prompts = Reading("queries").prompts(z, layout)
    rows = torch.cat([part[:, 8:] for part in prompts], dim=1)
    torch.testing.assert_close(rows[..., :4], torch.eye(4, dtype=torch.float64).expand(3, 4, 4))
    assert len(prompts) == 2 and rows[..., 4:].abs().max() == 0
    torch.testing.assert_close(prompts[1][:, :8], context)


@pytest.mark.parametrize(("rank", "kappa"), [(4, 1e2), (4, 1e6), (2, 3.0)])
def test_least_squares_is_the_pseudo_inverse(rank: int, kappa: float):
    prompts = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=2, kappa=kappa, rank=rank).sample(20, seed=1)
    expected = torch.linalg.pinv(prompts.A, rtol=1e-9) @ prompts.C
    torch.testing.assert_close(least_squares(prompts.A, prompts.C), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_targets_satisfy_their_equations(ridge: float):
    prompts = LINEAR.sample(5, seed=3)
    blocks = Blocks.of(prompts.tokens, LINEAR.layout(), ridge)
    w, dual = blocks.w, blocks.dual
    A, C, eye = prompts.A, prompts.C, torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close((A.mT @ A + ridge * eye) @ w, A.mT @ C)
    torch.testing.assert_close(A.mT @ dual, w)
    if ridge:
        torch.testing.assert_close(A @ A.mT @ dual + ridge * dual, C)
    torch.testing.assert_close(TARGETS["hessian"](blocks)[:, 0].view(5, 4, 4), A.mT @ A)
    torch.testing.assert_close(TARGETS["prediction"](blocks), prompts.B @ w)


def test_the_interval_covers_the_spread_of_fresh_samples():
    generator, covered = torch.Generator().manual_seed(0), 0
    truth = 0.5
    for _ in range(200):
        y = torch.randn(400, 3, generator=generator, dtype=torch.float64)
        predicted = 0.5 * y + 0.5 * torch.randn(y.shape, generator=generator, dtype=torch.float64)  # R² = 1 − ¼ − ¼
        sums = BlockSums(40, torch.zeros(3, dtype=torch.float64))
        for block, rows in enumerate(torch.arange(400).split(10)):
            sums.add(block, y[rows], predicted[rows])
        score = sums.score()
        assert score.value == pytest.approx(r2_score(y, predicted), abs=1e-10)
        covered += score.interval[0] < truth < score.interval[1]
    assert 180 <= covered <= 199


@pytest.mark.parametrize(
    ("model", "prompts", "target", "reading"),
    [(softmax(), scalar_prompts(1000), "w", "pooled"), (eagle(), linear_prompts(1000), "prediction", "rows")],
)
def test_erasing_the_direction_brings_the_score_down_to_the_control(model, prompts, target: str, reading: str):
    hook = hook_name("resid_post", 1)
    clean = probe(model, prompts, target, [hook], reading=reading).layers[0]
    assert clean.score.interval[0] > clean.shuffled.interval[1] + 0.2
    planted = eraser(model, prompts, target, hook, reading=reading)
    assert planted.rank == {"w": 3, "prediction": 2}[target]
    erased = probe(model, prompts, target, [hook], reading=reading, edits=[planted.edit]).layers[0]
    assert abs(erased.score.value - erased.shuffled.value) < 0.02
    assert erased.score.interval[0] < erased.shuffled.interval[1]
    other = probe(model, prompts, target, [hook], reading=reading, edits=[(hook, lambda z, hook: z)]).layers[0]
    assert other.score == clean.score


def test_erasing_the_weights_of_the_shipped_softmax_model():
    model, hook = zoo.load("linreg-softmax").double(), hook_name("resid_post", 4)
    prompts = family_from_dict(zoo.metadata("linreg-softmax")["task"]).sample(480, seed=1)
    clean = probe(model, prompts, "w", [hook]).layers[0]
    assert clean.above_controls and clean.score.value > 0.9
    planted = eraser(model, prompts, "w", hook, reading="queries")
    erased = probe(model, prompts, "w", [hook], edits=[planted.edit]).layers[0]
    assert abs(erased.score.value - erased.shuffled.value) < 0.1 and not erased.above_controls


def test_an_eraser_leaves_everything_else_alone():
    model, prompts, hook = softmax(), scalar_prompts(300), hook_name("resid_post", 0)
    planted, seen = eraser(model, prompts, "w", hook, reading="pooled"), {}
    run_with_hooks(model, prompts.tokens, [(hook, lambda z, hook: seen.update(before=z))])
    run_with_hooks(model, prompts.tokens, [planted.edit, (hook, lambda z, hook: seen.update(after=z))])
    change, U = seen["after"] - seen["before"], planted.directions
    torch.testing.assert_close(change, change @ U @ U.T)
    torch.testing.assert_close((seen["after"] @ U), (planted.mean @ U).expand(300, 11, 3))


def test_mlp_probe_reads_what_a_linear_one_cannot():
    model, prompts = eagle(), linear_prompts(400)
    hook = hook_name("resid_pre", 0)
    linear = probe(model, prompts, "hessian", [hook], reading="weighted", alphas=[1e-3]).layers[0]
    network = probe(model, prompts, "hessian", [hook], reading="token", estimator=MLPProbe((8,), max_iter=3))
    assert abs(linear.score.value) < 0.05 and network.estimator == "mlp"
    assert not network.layers[0].converged and network.layers[0].alpha is None
    soft = probe(softmax(), scalar_prompts(), "w", [hook_name("resid_post", 1)], reading="pooled", estimator="mlp")
    assert soft.layers[0].score.value > 0.2 and abs(soft.layers[0].shuffled.value) < 0.2


def test_a_random_copy_has_updates_of_the_same_size_and_other_weights():
    for model, prompts in ((softmax(), scalar_prompts(64)), (eagle(), linear_prompts(64))):
        fresh, again = (randomised(model, prompts.tokens, seed) for seed in (1, 1))
        names = [hook_name("attn_out", layer) for layer in range(model.cfg.n_layers)]
        with torch.no_grad():
            caches = [each.run_with_cache(prompts.tokens)[1] for each in (model, fresh)]
        for name in names:
            rms = [cache[name].square().mean().sqrt() for cache in caches]
            assert rms[0] == pytest.approx(rms[1])
        assert not torch.equal(fresh.blocks[0].attn.W_Q, model.blocks[0].attn.W_Q)
        assert torch.equal(fresh.blocks[0].attn.W_Q, again.blocks[0].attn.W_Q)


def test_parity_is_measured():
    assert odd_in_tokens(eagle(), linear_prompts(2).tokens, LINEAR.layout())
    assert not odd_in_tokens(softmax(), scalar_prompts(2).tokens, softmax().layout)


def test_a_rotated_stream_gives_the_same_report():
    from models.constructions.disguises import rotation

    model, prompts = eagle(), linear_prompts(200)
    turned = rotation(model, seed=1)
    basis = turned.layout.basis
    same = probe(turned, prompts.tokens @ basis.T, "w", untrained=turned).layers
    for layer, other in zip(probe(model, prompts, "w", untrained=model).layers, same, strict=True):
        assert layer.score.value == pytest.approx(other.score.value, abs=1e-7)


def test_report_as_text_and_as_plain_values():
    report = probe(softmax(), scalar_prompts(), "w", [hook_name("q", 0), hook_name("pattern", 1)], reading="token")
    values = json.loads(json.dumps(report.to_dict()))
    assert [layer["hook"] for layer in values["layers"]] == ["blocks.0.attn.hook_q", "blocks.1.attn.hook_pattern"]
    for layer in values["layers"]:
        assert {"score", "shuffled", "untrained", "prompt_only", "interval"} <= set(layer)
        assert layer["interval"][0] < layer["score"] < layer["interval"][1] and layer["depth"] is None
    assert "blocks.1.attn.hook_pattern" in str(report) and report.best in report.layers
    weighted = probe(softmax(), scalar_prompts(), "w", [hook_name("resid_post", 0)], reading="weighted", alphas=[1e-3])
    assert np.isclose(np.linalg.norm(weighted.to_dict()["layers"][0]["positions"]), 1)


def test_bad_input():
    model, prompts, hook = softmax(), scalar_prompts(60), hook_name("resid_post", 0)
    with pytest.raises(ValueError, match="45 training rows do not determine 48 coefficients"):
        probe(model, scalar_prompts(60), "w", ["blocks.0.hook_resid_pre"], alphas=[0.0])
    with pytest.raises(ValueError, match=r"activations at 'blocks.0.hook_resid_post' hold NaN"):
        probe(model, prompts, "w", [hook], edits=[(hook, lambda z, hook: z * torch.nan)])
    for name, value, match in (
        ("target", "colour", "unknown target 'colour'; known: w, xty"),
        ("hooks", ("blocks.9.hook_resid_post",), "no hook point"),
        ("hooks", "blocks.0.hook_resid_pst", "the nearest: blocks.0.hook_resid_post"),
        ("hooks", (hook, hook), "each hook once"),
        ("alpha", 1.0, "unknown setting 'alpha'; known: reading, estimator, alphas"),
        ("reading", "sideways", "unknown reading 'sideways'; known: auto, token"),
        ("reading", "rows", "has no value for each of the context rows"),
        ("reading", Reading("token", 11), "have 11 rows, and there is no row 11"),
        ("estimator", "forest", "unknown estimator 'forest'"),
        ("ridge", -1.0, "ridge=-1.0 must be 0 or"),
        ("held_out", 1.5, "held_out=1.5"),
        ("layout", BlockLayout.standard(x=2, y=1), "do not define the target 'w': they have 4 columns"),
        ("layout", BlockLayout.standard(a=2, b=1, y=1), "the prompts define no target"),
    ):
        with pytest.raises(ValueError, match=match):
            probe(model, prompts, **{name: value})
    with pytest.raises(ValueError, match="at least one target"):
        probe_all(model, prompts, [])
    with pytest.raises(ValueError, match=r"prompts must be tokens .*, got int"):
        probe(model, 3, "w")
    with pytest.raises(ValueError, match="too few to train"):
        probe(model, scalar_prompts(5))
    with pytest.raises(ValueError, match="fitted by least squares"):
        probe(model, prompts, reading="weighted", estimator="mlp")
    with pytest.raises(ValueError, match="target columns are constant"):
        probe(model, prompts.tokens[:1].repeat(40, 1, 1))
    model.layout = None
    with pytest.raises(ValueError, match="do not define the target 'w': the model has no layout"):
        probe(model, prompts)


def test_a_hook_that_never_fires_is_named():
    from transformer_lens.hook_points import HookPoint

    model = softmax()
    model.hook_idle = HookPoint()
    model.setup()
    with pytest.raises(ValueError, match="'hook_idle' exists but did not fire"):
        probe(model, scalar_prompts(40), "w", ["hook_idle"])


def test_an_eraser_refuses_what_it_cannot_do():
    model, prompts, hook = softmax(), scalar_prompts(40), hook_name("resid_post", 0)
    with pytest.raises(ValueError, match="must be one of token, pooled, rows, queries"):
        eraser(model, prompts, "w", hook, reading="second-moment")
    with pytest.raises(ValueError, match="along all 6 directions"):
        eraser(eagle(), linear_prompts(40), "hessian", LAST, reading="token")
    with pytest.raises(ValueError, match="no random weights can be drawn"):
        model.register_parameter("gain", torch.nn.Parameter(torch.ones(1).double()))
        probe(model, prompts, "w", [hook])
