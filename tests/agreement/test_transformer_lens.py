"""TransformerLens's models through the same calls, against their forward pass written down from the weights.

On version 3 the models are HookedTransformer, on version 4 the native bridge and a bridge around a GPT-2.
"""

import pytest
import torch
from torch.nn import functional

from interp.ablation import (
    Reference,
    Runs,
    ablate,
    ablate_head,
    ablate_layer,
    ablate_mlp,
    early_exit,
    swap_kernel,
    swapped,
)
from interp.comparison import CANDIDATES, OWN, Problems, compare
from interp.covariance import Covariance
from interp.gaussian_process import posterior
from interp.heads import attention, read_heads
from interp.hooks import capture, float64_copy, hook_name
from interp.layout import BlockLayout
from interp.probes import probe
from interp.probes.untrained import randomised
from interp.protocol import Continuous, plain_forward
from interp.unrolling import certify, kernel_operators, unroll
from models.prompts import GaussianProcess
from tests.transformer_lens_models import (
    BARE,
    FOUR,
    ONLY_FOUR,
    by_hand,
    gpt2_bridge,
    norm,
    own_model,
    rows,
    without_biases,
    words,
)

LAYOUT = BlockLayout.standard(x=3, y=2, rest=1, n_query=2, sign=-1)
MODELS = {
    "own": own_model,
    "gpt2": pytest.param(gpt2_bridge, marks=pytest.mark.skipif(not FOUR, reason=ONLY_FOUR)),
}
each_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())


def exact(build):
    return float64_copy(build()).requires_grad_(False)


@each_model
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_a_linear_swap_is_the_linear_model(build, dtype: torch.dtype, bound: float):
    model = build().requires_grad_(False) if dtype == torch.float32 else exact(build)
    clean, expected, found = model(words()), by_hand(model, words(), linear=True), swapped(model, words(), "linear")
    size = expected.abs().max()
    assert found.dtype == dtype
    assert (found - expected).abs().max() <= bound * size
    assert (clean - expected).abs().max() > 1e-2 * size
    assert (clean - by_hand(model, words())).abs().max() <= bound * size


@each_model
@pytest.mark.parametrize("continuous", [False, True])
def test_ablations_and_exits_remove_what_they_say(build, continuous: bool):
    foreign = exact(build)
    model = Continuous(foreign, LAYOUT, readout="unembed") if continuous else foreign
    prompts = rows() if continuous else words()
    source = Reference.of(model, prompts)
    cases = [
        (ablate_head(source, 1, [0], "zero"), {"no_head": (1, 0)}),
        (ablate_mlp(source, [0], "zero"), {"no_mlp": 0}),
        (ablate_layer(source, [1], "zero"), {"no_layer": 1}),
        (early_exit(model, 1), {"depth": 1}),
        (early_exit(model, 0), {"depth": 0}),
        (swap_kernel(model, "linear"), {"linear": True}),
    ]
    for runs in (Runs(model, prompts), Runs(model, prompts, reuse=False)):
        for item, change in cases:
            expected = runs.read(by_hand(foreign, prompts, **change))
            assert (runs.predictions(item) - expected).abs().max() <= 1e-10 * expected.abs().max(), item
    result = ablate(model, prompts, [item for item, _ in cases])
    assert result.prefix_reused and len(result.rows) == len(cases)
    assert all(row.effects["moved"].value > 1e-3 for row in result.rows)


@each_model
def test_hooks_see_the_stream(build):
    model = exact(build)
    names = [hook_name("resid_pre", 0), hook_name("resid_post", 0), hook_name("resid_post", 1)]
    for chosen, prompts in ((model, words()), (Continuous(model, LAYOUT), rows())):
        found = capture(chosen, prompts, names)
        for depth, name in enumerate(names):
            assert (found[name] - by_hand(model, prompts, depth=depth, stream=True)).abs().max() <= 1e-10


@each_model
def test_regression_prompts_enter_as_the_stream(build):
    model, prompts = exact(build), rows()
    through_layout = Continuous(model, LAYOUT)
    last = by_hand(model, prompts, stream=True)
    assert (through_layout.predict(prompts) + last[:, -2:, 3:5]).abs().max() <= 1e-10
    shifted = prompts + model.W_pos[: prompts.shape[1]]
    with_positions = Continuous(model, LAYOUT, positions=True, readout="unembed")
    assert (with_positions(prompts) - by_hand(model, shifted)).abs().max() <= 1e-10
    assert (plain_forward(with_positions, prompts) - with_positions(prompts)).abs().max() <= 1e-10
    linear = Continuous(model, LAYOUT, kernel="linear", readout="unembed")
    assert (linear(prompts) - by_hand(model, prompts, linear=True)).abs().max() <= 1e-9


@each_model
def test_the_untrained_control_is_a_model_of_its_weights(build):
    model = Continuous(exact(build), LAYOUT)
    fresh = randomised(model, rows())
    assert (fresh(rows()) + by_hand(fresh.foreign, rows(), stream=True)[..., 3:5]).abs().max() <= 1e-10
    for layer in range(2):
        for point in ("attn_out", "mlp_out"):
            name = hook_name(point, layer)
            before, after = (capture(each, rows(), [name])[name].square().mean() for each in (model, fresh))
            assert abs(before - after) <= 1e-9 * before
    assert (fresh.blocks[0].attn.W_Q - model.blocks[0].attn.W_Q).abs().max() > 0.1


@each_model
def test_a_probe_before_block_0_is_a_probe_of_the_prompt(build):
    prompts = rows(200, 12)
    report = probe(Continuous(exact(build), LAYOUT), prompts, "hessian", reading="second-moment", batch=200)
    first, *_, last = report.layers
    assert abs(first.score.value - first.prompt_only.value) <= 1e-8
    assert first.score.value > 0.999 > last.score.value
    assert [layer.depth for layer in report.layers] == [0, 1, 2]


@each_model
def test_compare_reads_each_layer(build):
    model, covariance, lam = exact(build), Covariance("rbf", 1.0), 0.3
    layout = BlockLayout.standard(x=3, y=1, rest=2, n_query=2)

    def draw(count: int, seed: int) -> Problems:
        tokens = rows(count, 8, seed)
        tokens[:, -2:, 3] = 0
        target = tokens[:, -2:, :3].sum(-1, keepdim=True).sin()
        return Problems(tokens, tokens[:, :-2, :3], tokens[:, :-2, 3:4], tokens[:, -2:, :3], target)

    solvers = {"Nesterov": CANDIDATES["Nesterov"]}
    sizes = {"steps": 4, "seeds": 2, "train": 8, "test": 8}
    found = compare(Continuous(model, layout), draw, covariance, lam, solvers=solvers, **sizes)
    test = draw(8, 0)
    krr = posterior(covariance, lam, test.x, test.y, test.queries).mean
    for layer in range(2):
        answer = by_hand(model, test.tokens, depth=layer + 1, stream=True)[:, -2:, 3:4]
        expected = (answer - krr).norm() / krr.norm()
        assert abs(found.measured[OWN].to_krr[0, layer] - expected) <= 1e-10 * expected


def test_attention_only_under_a_linear_swap_is_unrolled_exactly():
    foreign = without_biases(exact(lambda: own_model(**BARE)))
    model = Continuous(foreign, LAYOUT, kernel="linear")
    rule, prompts = unroll(model), 0.5 * rows()
    expected = -by_hand(foreign, prompts, linear=True, stream=True)[:, -2:, 3:5]
    assert (rule.predict(prompts, "exact") - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert certify(rule, model, prompts).levels["exact"].output.max_relative_error <= 1e-10


def test_attention_only_softmax_in_words():
    foreign = without_biases(exact(lambda: own_model(**BARE)))
    model, prompts = Continuous(foreign, LAYOUT), rows()
    rule = kernel_operators(model, prompts=prompts)
    expected = -by_hand(foreign, prompts, stream=True)[:, -2:, 3:5]
    assert (rule.predict(prompts) - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert rule.output is not None and rule.output.max_relative_error <= 1e-10 and max(rule.by_layer) <= 1e-10
    attn = foreign.blocks[1].attn
    assert torch.allclose(rule.layers[1].heads[0].M, attn.W_Q[0] @ attn.W_K[0].T / 3**0.5, atol=1e-12)


@each_model
def test_heads_are_read_in_the_models_own_scores(build):
    model, layout = exact(build), BlockLayout.standard(x=1, y=1, rest=4, n_query=4)
    family = GaussianProcess(n=8, n_query=4, lam=0.3)
    prompts = family.sample(16, seed=0)
    tokens = functional.pad(prompts.tokens.double(), (0, 4))
    wrapped = Continuous(model, layout)
    (scores, pattern), _ = attention(wrapped, tokens, wrapped.layout)
    block = model.blocks[0]
    u = norm(model.cfg, block.ln1, tokens)
    for head in range(2):
        q, k = (u @ getattr(block.attn, f"W_{i}")[head] + getattr(block.attn, f"b_{i}")[head] for i in "QK")
        expected = q @ k.mT / 3**0.5
        assert torch.allclose(scores[:, head], expected, rtol=1e-10, atol=1e-12)
        masked = expected.masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
        assert torch.allclose(pattern[:, head], masked.softmax(-1), rtol=1e-10)
    report = read_heads(wrapped, prompts, family.kernel, family.lam, tokens=tokens)
    assert len(report.heads) >= 4 and len(report.mlps) == 2


def test_what_is_no_rule_is_refused_in_a_sentence():
    bare, normed = own_model(**BARE), own_model()
    for model, message in (
        (Continuous(normed, LAYOUT), "it has norms"),
        (Continuous(bare, LAYOUT), "its attention has biases"),
        (Continuous(without_biases(bare), LAYOUT, positions=True), "it adds position embeddings"),
        (normed, "give interp.protocol.Continuous"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel_operators(model, LAYOUT)
    shifted = Continuous(own_model(**BARE), LAYOUT, kernel="linear")
    for model, message in (
        (Continuous(bare, LAYOUT), "its attention kernel is softmax"),
        (Continuous(normed, LAYOUT, kernel="linear"), "it has LN layers"),
        (shifted, "the bias blocks.0.attn.b_Q is not zero"),
    ):
        with pytest.raises(ValueError, match=message):
            unroll(model)
