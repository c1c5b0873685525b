"""Answers from a cached context against whole forward passes, one prompt a query; the door."""

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.context_cache import ContextCache
from models.transformer import HookedTransformer

SOFTMAX = AttentionKernel("exp", "sum", "sqrt_d_head")
KERNELS = {
    "softmax": SOFTMAX,
    "linear": AttentionKernel(scale="n"),
    "elu1": AttentionKernel("elu1", "sum"),
    "learned": AttentionKernel("learned", "sum"),
    "gaussian": AttentionKernel("gaussian", "sum"),
    "exp": AttentionKernel("exp", "none", "n"),
}
ALONE, WITH_ITSELF = Visibility("context", "context"), Visibility("context", "context_and_self")
RULES = {
    "context": ALONE,
    "itself too": WITH_ITSELF,
    "causal": Visibility("causal", "causal"),
    "context blind": Visibility("none", "all"),
    "machines": Visibility("machine", "context_and_self"),
    "one machine": Visibility("machine 1", "machine 1"),
}


def transformer(
    kernel: AttentionKernel = SOFTMAX,
    rules: Visibility | list[Visibility] = WITH_ITSELF,
    heads: int = 2,
    n_query: int = 1,
    **settings: object,
) -> HookedTransformer:
    """Layer norms, MLPs, biases, read-in and read-out, every parameter random; machines of half the context."""
    layout = BlockLayout.standard(x=2, y=1, n_query=n_query, visibility=rules, machines=2)
    full = dict(attn_only=False, d_mlp=7, act_fn="gelu", normalization_type="LN", use_biases=True, d_in=3, d_out=2)
    full |= dict(d_feature=5 if kernel.similarity == "learned" else None)
    cfg = TransformerConfig(3, heads, 6, 4, kernel, init_std=0.4, **(full | settings))
    model = HookedTransformer(cfg, layout).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def rows(count: int, seed: int, width: int = 3, batch: int = 2) -> Tensor:
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(model: HookedTransformer, context: Tensor, queries: Tensor) -> Tensor:
    """The answer to each query from a whole forward pass of a prompt of its own."""
    with torch.no_grad():
        answers = [model.predict(torch.cat([context, query], dim=1)) for query in queries.split(1, dim=1)]
    return torch.cat(answers, dim=1)


def assert_equal(model: HookedTransformer, width: int = 3) -> None:
    context, queries = rows(8, 2, width), rows(5, 3, width)
    found, expected = ContextCache.of(model, context).answer(queries), one_by_one(model, context, queries)
    assert (found - expected).abs().max() < 1e-12 * expected.abs().max()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rules", [ALONE, WITH_ITSELF], ids=["context", "itself too"])
@pytest.mark.parametrize("heads", [1, 2])
def test_answers_are_those_of_whole_forward_passes(kernel: str, rules: Visibility, heads: int):
    assert_equal(transformer(KERNELS[kernel], rules, heads))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kernel", ["softmax", "linear"])
def test_every_rule_under_which_no_context_row_sees_a_query(rules: str, kernel: str):
    assert_equal(transformer(KERNELS[kernel], RULES[rules]))


@pytest.mark.parametrize("kernel", ["softmax", "linear"])
def test_heads_with_rules_of_their_own(kernel: str):
    assert_equal(transformer(KERNELS[kernel], [ALONE, WITH_ITSELF]))
    assert_equal(transformer(KERNELS[kernel], [Visibility("context", "none"), Visibility("none", "context")]))


@pytest.mark.parametrize(
    "settings",
    [
        dict(attn_only=True, d_mlp=None),
        dict(normalization_type=None, use_biases=False),
        dict(positional_embedding_type="standard", n_ctx=9),
    ],
    ids=["attention only", "bare", "positions"],
)
def test_parts_of_the_model(settings: dict):
    assert_equal(transformer(**settings))


def test_tokens_that_are_the_stream():
    layout = BlockLayout.standard(x=3, y=2, n_query=1, sign=-1)
    model = HookedTransformer(TransformerConfig(2, 1, 5, 5, init_std=0.3), layout).double()
    assert_equal(model, width=5)


def test_several_queries_a_prompt_are_the_whole_prompt():
    """Where queries do not see each other one forward pass holds the answers to all of them."""
    model = transformer(n_query=5)
    context, queries = rows(8, 2), rows(5, 3)
    with torch.no_grad():
        expected = model.predict(torch.cat([context, queries], dim=1))
    found = ContextCache.of(model, context).answer(queries)
    assert (found - expected).abs().max() < 1e-12 * expected.abs().max()
    single = ContextCache.of(model, context).answer(queries[:, 3:4])
    assert (single - expected[:, 3:4]).abs().max() < 1e-12 * expected.abs().max()


def test_a_cache_answers_again_and_again_and_the_model_is_left_as_it_was():
    model = transformer()
    cache = ContextCache.of(model, rows(8, 2))
    first = cache.answer(rows(5, 3))
    cache.answer(rows(2, 4))
    assert torch.equal(cache.answer(rows(5, 3)), first)
    assert not any(point._forward_hooks for point in model.hook_dict.values())
    assert ContextCache.of(model.float(), rows(8, 2).float()).answer(rows(5, 3).float()).dtype == torch.float32


def test_answers_cost_no_more_than_their_rows():
    """By the counter: matrix products of queries and of the pairs query–context, and the read-out alone."""
    model = transformer(heads=1, rules=ALONE)
    cache = ContextCache.of(model, rows(8, 2, batch=1))
    with FlopCounterMode(display=False) as counter:
        cache.answer(rows(5, 3, batch=1))
    per_query = 3 * 2 * (4 * 6 * 4 + 2 * 8 * 4 + 2 * 6 * 7) + 2 * (3 * 6 + 6 * 2)
    assert counter.get_total_flops() == 5 * per_query


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (transformer(rules=Visibility("all", "context")), "'all' see the queries"),
        (transformer(rules=Visibility("causal", "causal"), n_query=2), "2 queries of a prompt see each other"),
        (transformer(positional_embedding_type="standard", n_ctx=10, n_query=2), "a position for each of the 2"),
    ],
    ids=["context sees queries", "queries meet", "queries have positions"],
)
def test_models_whose_answers_depend_on_more_are_refused(model: HookedTransformer, message: str):
    with pytest.raises(ValueError, match=message):
        ContextCache.of(model, rows(8, 2))


def test_hooks_are_refused_and_not_skipped():
    model = transformer()
    model.add_hook("blocks.1.hook_resid_post", lambda z, hook: 2 * z)
    with pytest.raises(ValueError, match=r"a hook on 'blocks\.1\.hook_resid_post'"):
        ContextCache.of(model, rows(8, 2))


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (rows(5, 3, batch=3), r"takes queries \[2, query, 3\].*\[3, 5, 3\]"),
        (rows(5, 3, width=4), r"takes queries \[2, query, 3\].*\[2, 5, 4\]"),
        (rows(5, 3).float(), "the queries are torch.float32 on cpu, the weights torch.float64"),
    ],
    ids=["batch", "width", "dtype"],
)
def test_queries_that_do_not_fit_are_refused(queries: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        ContextCache.of(transformer(), rows(8, 2)).answer(queries)


def test_contexts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"a context is \[batch, row, 3\].*\[8, 3\]"):
        ContextCache.of(transformer(), rows(8, 2)[0])
    with pytest.raises(ValueError, match=r"the model takes tokens \[batch, token, 3\]"):
        ContextCache.of(transformer(), rows(8, 2, width=4))
    with pytest.raises(ValueError, match="11 rows, and the model has positions for 9"):
        ContextCache.of(transformer(positional_embedding_type="standard", n_ctx=9), rows(10, 2))
