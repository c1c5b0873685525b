"""Attention against sums over rows written out by hand, in both forms, for every kernel and visibility rule."""

import math
from copy import deepcopy
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from interp.kernels import FEATURE_MAPS, LEARNED, NORMALISATIONS, SCALES, SCORE_FUNCTIONS, AttentionKernel
from interp.layout import RULES, BlockLayout, Visibility
from models.attention import Attention, Masks
from models.config import TransformerConfig
from models.linear_attention import CHUNK
from models.transformer import HookedTransformer

QUERIES, MACHINES, D_MODEL, D_HEAD, D_FEATURE = 3, 2, 4, 3, 5
RULE_NAMES = (*RULES, "machine 1")
PAIRS = [Visibility(context, query) for context in RULE_NAMES for query in RULE_NAMES if query != "machine"]
KERNELS = [
    AttentionKernel(*settings)
    for settings in product((*FEATURE_MAPS, LEARNED, *SCORE_FUNCTIONS), NORMALISATIONS, SCALES)
]
FEATURE_KERNELS = [kernel for kernel in KERNELS if kernel.is_feature_map]

SEES = {
    "none": lambda i, k, n: False,
    "context": lambda i, k, n: k < n,
    "machine": lambda i, k, n: k < n and i // (n // MACHINES) == k // (n // MACHINES),
    "context_and_self": lambda i, k, n: k < n or k == i,
    "causal": lambda i, k, n: k <= i,
    "all": lambda i, k, n: True,
    "machine 1": lambda i, k, n: k < n and k // (n // MACHINES) == 1 and (i >= n or i // (n // MACHINES) == 1),
}


def attention(kernel: AttentionKernel, visibility: object, n_heads: int = 2, seed: int = 0) -> HookedTransformer:
    """One layer with biases, weights of order one; positive where a difference of sums could be divided by."""
    layout = BlockLayout.standard(x=3, y=1, n_query=QUERIES, machines=MACHINES, visibility=visibility)
    d_feature = D_FEATURE if kernel.similarity == LEARNED else None
    cfg = TransformerConfig(
        1, n_heads, D_MODEL, D_HEAD, kernel, d_feature=d_feature, use_biases=True, init_std=0.7, seed=seed
    )
    model = HookedTransformer(cfg, layout).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b_" in name:
                parameter.normal_(generator=generator)
            if kernel.similarity == "linear" and kernel.normalisation == "sum":
                parameter.abs_()
    return model


def tokens(kernel: AttentionKernel, n_context: int, seed: int = 1) -> Tensor:
    u = torch.randn(2, n_context + QUERIES, D_MODEL, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return u.abs() if kernel.similarity == "linear" and kernel.normalisation == "sum" else u


def by_hand(attn: Attention, z: Tensor, kernel: AttentionKernel, rules: list[Visibility]) -> Tensor:
    """Σ_h (Σ_k weight[i, k] v_k) W_O + b_O with loops over heads and einsum over rows."""
    size = z.shape[1]
    n = size - QUERIES
    out = torch.zeros_like(z) + attn.b_O
    for h, rule in enumerate(rules):
        q, k, v = (
            torch.einsum("bnm,md->bnd", z, getattr(attn, f"W_{name}")[h]) + getattr(attn, f"b_{name}")[h]
            for name in "QKV"
        )
        sees = [[SEES[rule.context if i < n else rule.query](i, j, n) for j in range(size)] for i in range(size)]
        weights = similarity(attn, kernel, q, k, h, n) * torch.tensor(sees)
        if kernel.normalisation == "sum":
            total = weights.sum(-1, keepdim=True)
            weights = weights / torch.where(total == 0, 1, total)
        out += torch.einsum("bik,bkd,dm->bim", weights, v, attn.W_O[h])
    return out


def similarity(attn: Attention, kernel: AttentionKernel, q: Tensor, k: Tensor, h: int, n: int) -> Tensor:
    scale = {"none": 1, "sqrt_d_head": 1 / math.sqrt(D_HEAD), "n": 1 / n}[kernel.scale]
    gap = torch.linalg.vector_norm(q[:, :, None] - k[:, None], dim=-1)
    features = {
        "linear": lambda u: u,
        "relu": lambda u: u.clamp(min=0),
        "elu1": lambda u: torch.where(u > 0, u + 1, u.exp()),
        "uniform": lambda u: 1 + 0 * u[..., :1],
        "learned": lambda u: features["elu1"](torch.einsum("bnd,df->bnf", u, attn.W_F[h]) + attn.b_F[h]),
    }
    if kernel.similarity in features:
        phi = features[kernel.similarity]
        return scale * torch.einsum("bif,bkf->bik", phi(q), phi(k))
    scores = {"exp": torch.einsum("bid,bkd->bik", q, k), "gaussian": -gap.square() / 2, "laplace": -gap}
    return (scale * scores[kernel.similarity]).exp()


def both_forms(model: HookedTransformer, z: Tensor) -> tuple[Tensor, Tensor]:
    """The attention output without hooks, and with a hook on the pattern."""
    attn = model.blocks[0].attn
    plain = attn(z)
    with model.hooks([("blocks.0.attn.hook_pattern", lambda u, hook: u)]):
        hooked = attn(z)
    return plain, hooked


def assert_close(a: Tensor, b: Tensor) -> None:
    assert torch.allclose(a, b, rtol=1e-12, atol=1e-12 * max(1.0, b.abs().max().item())), (a - b).abs().max()


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_both_forms_by_hand(kernel: AttentionKernel):
    z = tokens(kernel, n_context=6)
    for visibility in PAIRS:
        model = attention(kernel, visibility)
        expected = by_hand(model.blocks[0].attn, z, kernel, [visibility] * 2)
        for out in both_forms(model, z):
            assert_close(out, expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_heads_with_different_rules(kernel: AttentionKernel):
    rules = [
        Visibility("causal", "causal"),
        Visibility("machine", "all"),
        Visibility("none", "context"),
        Visibility("causal", "causal"),
    ]
    model, z = attention(kernel, rules, n_heads=4), tokens(kernel, n_context=6)
    expected = by_hand(model.blocks[0].attn, z, kernel, rules)
    for out in both_forms(model, z):
        assert_close(out, expected)


@pytest.mark.parametrize("kernel", FEATURE_KERNELS, ids=str)
@pytest.mark.parametrize("n_context", [CHUNK - QUERIES, CHUNK, 2 * CHUNK + 14])
def test_running_sums_carry_over_chunks(kernel: AttentionKernel, n_context: int):
    n_context += n_context % MACHINES
    z = tokens(kernel, n_context)
    for visibility in (Visibility("causal", "causal"), Visibility("causal", "all"), Visibility("machine", "causal")):
        model = attention(kernel, visibility)
        expected = by_hand(model.blocks[0].attn, z, kernel, [visibility] * 2)
        for out in both_forms(model, z):
            assert_close(out, expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gradients_flow_through_both_forms_alike(kernel: AttentionKernel):
    for visibility in (
        Visibility("causal", "causal"),
        Visibility("machine", "context_and_self"),
        Visibility("none", "all"),
    ):
        model = attention(kernel, visibility)
        z = tokens(kernel, n_context=6).requires_grad_()
        inputs = [z, *model.blocks[0].attn.parameters()]
        plain, hooked = (torch.autograd.grad(out.square().sum(), inputs) for out in both_forms(model, z))
        expected = torch.autograd.grad(
            by_hand(model.blocks[0].attn, z, kernel, [visibility] * 2).square().sum(), inputs
        )
        for a, b, c in zip(plain, hooked, expected, strict=True):
            assert_close(a, c)
            assert_close(b, c)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_row_that_is_not_seen_changes_nothing(kernel: AttentionKernel):
    z, size = tokens(kernel, n_context=6)[:1], 6 + QUERIES
    changed = z + torch.eye(size, dtype=z.dtype)[..., None] * (2 * z + 1)  # prompt i has another row i
    noticed = []
    for visibility in PAIRS:
        model = attention(kernel, visibility)
        seen = model.layout.allowed(size, 1)[0].T
        untouched = ~(seen | torch.eye(size, dtype=torch.bool))
        for old, new in zip(both_forms(model, z), both_forms(model, changed), strict=True):
            moved = (new - old).abs().amax(-1)
            assert (moved[untouched] < 1e-13 * old.abs().max()).all()
            noticed.append(moved[seen] > 1e-9)
    assert torch.cat(noticed).float().mean() > 0.7


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_rows_that_see_nothing_get_the_bias_and_finite_gradients(kernel: AttentionKernel):
    model = attention(kernel, Visibility("none", "none"))
    for out in both_forms(model, tokens(kernel, n_context=6)):
        assert torch.equal(out, model.blocks[0].attn.b_O.expand_as(out))
        for gradient in torch.autograd.grad(out.sum(), list(model.blocks[0].attn.parameters()), allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@pytest.fixture
def no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the pattern was formed")

    monkeypatch.setattr(AttentionKernel, "pattern", refuse)


@pytest.mark.parametrize("kernel", FEATURE_KERNELS, ids=str)
def test_feature_maps_form_no_pattern_unless_asked(kernel: AttentionKernel, no_pattern: None):
    model = attention(kernel, Visibility("causal", "all"))
    z = tokens(kernel, n_context=6)
    model(z)
    others = [name for name in model.hook_dict if "pattern" not in name and "attn_scores" not in name]
    model.run_with_cache(z, names_filter=others)
    for point in ("pattern", "attn_scores"):
        with pytest.raises(AssertionError, match="the pattern was formed"):
            model.run_with_cache(z, names_filter=f"blocks.0.attn.hook_{point}")
    with pytest.raises(AssertionError, match="the pattern was formed"):
        model.run_with_cache(z)
    model(z)


def test_score_functions_always_form_the_pattern(no_pattern: None):
    kernel = AttentionKernel("exp", "sum")
    with pytest.raises(AssertionError, match="the pattern was formed"):
        attention(kernel, Visibility())(tokens(kernel, n_context=6))


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_a_hook_of_either_direction_asks_for_the_pattern(direction: str):
    kernel, seen = AttentionKernel(), []
    model = attention(kernel, Visibility())
    model.add_hook("blocks.0.attn.hook_pattern", lambda u, hook: seen.append(u), dir=direction)
    model(tokens(kernel, n_context=6)).sum().backward()
    assert seen


def flops(model: HookedTransformer, n_context: int, hooks: list) -> int:
    with FlopCounterMode(display=False) as counter, model.hooks(hooks):
        model(torch.ones(1, n_context + QUERIES, D_MODEL, dtype=torch.float64))
    return counter.get_total_flops()


@pytest.mark.parametrize("visibility", PAIRS, ids=str)
def test_work_grows_with_the_number_of_rows_only(visibility: Visibility):
    model = attention(AttentionKernel("elu1", "sum"), visibility)
    growth = flops(model, 16 * CHUNK, []) / flops(model, 8 * CHUNK, [])
    assert 1.5 < growth < 2.05
    pattern = [("blocks.0.attn.hook_pattern", lambda u, hook: u)]
    assert flops(model, 16 * CHUNK, pattern) / flops(model, 8 * CHUNK, pattern) > 3.5


def test_masks_follow_the_number_of_tokens():
    masks = Masks(BlockLayout.standard(x=1, y=1), n_heads=2)
    for size in (3, 5, 3):
        assert masks(size, torch.device("cpu")).shape == (2, size, size)
    assert masks(3, torch.device("cpu")) is masks(3, torch.device("cpu"))


def test_qk_and_ov_are_the_products():
    attn = attention(AttentionKernel(), Visibility()).blocks[0].attn
    assert torch.allclose(attn.QK.AB, torch.einsum("hmd,hnd->hmn", attn.W_Q, attn.W_K))
    assert torch.allclose(attn.OV.AB, torch.einsum("hmd,hdn->hmn", attn.W_V, attn.W_O))


def test_a_mask_made_inside_a_transform_is_not_kept():
    """It is a wrapper without storage there, which no deepcopy takes."""
    cfg = TransformerConfig(1, 1, 3, 2, kernel=AttentionKernel("exp", "sum"))
    model = HookedTransformer(cfg, BlockLayout.standard(x=2, y=1))
    tokens = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    torch.func.jvp(model, (tokens,), (tokens,))
    assert torch.equal(deepcopy(model)(tokens), model(tokens))
