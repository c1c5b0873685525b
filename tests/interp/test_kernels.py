import math

import pytest
import torch
from torch import Tensor

from interp.kernels import FEATURE_MAPS, LEARNED, NORMALISATIONS, SCALES, SCORE_FUNCTIONS, AttentionKernel

SIMILARITIES = (*FEATURE_MAPS, LEARNED, *SCORE_FUNCTIONS)
ALL = [AttentionKernel(s, n, c) for s in SIMILARITIES for n in NORMALISATIONS for c in SCALES]
N_CONTEXT = 5

UNSCALED = {
    "linear": lambda q, k: sum(a * b for a, b in zip(q, k, strict=True)),
    "relu": lambda q, k: sum(max(a, 0) * max(b, 0) for a, b in zip(q, k, strict=True)),
    "elu1": lambda q, k: sum(elu1(a) * elu1(b) for a, b in zip(q, k, strict=True)),
    "uniform": lambda q, k: 1.0,
    "learned": lambda q, k: sum((a * a + 1) * (b * b + 1) for a, b in zip(q, k, strict=True)),
    "exp": lambda q, k: sum(a * b for a, b in zip(q, k, strict=True)),
    "gaussian": lambda q, k: -(math.dist(q, k) ** 2) / 2,
    "laplace": lambda q, k: -math.dist(q, k),
}


def elu1(a: float) -> float:
    return a + 1 if a > 0 else math.exp(a)


def square_plus_one(u: Tensor) -> Tensor:
    return u * u + 1


def queries_and_keys(batch: int = 2, rows: int = 6, d_head: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, batch, rows, d_head, generator=generator, dtype=torch.float64)
    k[:, 0] = q[:, 0]  # a pair at distance 0
    return q, k


def one_row(kernel: AttentionKernel, scores: list[float], seen: list[bool]) -> list[float]:
    """A row of the pattern, in Python numbers."""
    weights = [(s if kernel.is_feature_map else math.exp(s)) if v else 0.0 for s, v in zip(scores, seen, strict=True)]
    total = sum(weights)
    return [w / total if kernel.normalisation == "sum" and total else w for w in weights]


@pytest.mark.parametrize("kernel", ALL, ids=str)
def test_scores_and_pattern_by_hand(kernel: AttentionKernel):
    q, k = queries_and_keys()
    scale = {"none": 1, "sqrt_d_head": 3**-0.5, "n": 1 / N_CONTEXT}[kernel.scale]
    similarity = UNSCALED[kernel.similarity]
    by_hand = [
        [[scale * similarity(a, b) for b in kk] for a in qq] for qq, kk in zip(q.tolist(), k.tolist(), strict=True)
    ]
    scores = kernel.scores(q, k, N_CONTEXT, square_plus_one)
    assert torch.allclose(scores, torch.tensor(by_hand, dtype=torch.float64), rtol=1e-12, atol=1e-13)

    allowed = torch.ones(6, 6).tril().bool()
    allowed[2] = False
    rows = [
        [one_row(kernel, row, seen) for row, seen in zip(s, allowed.tolist(), strict=True)] for s in scores.tolist()
    ]
    expected = torch.tensor(rows, dtype=torch.float64)
    assert torch.allclose(kernel.pattern(scores, allowed), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kernel", ALL, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_hidden_key_has_no_weight_whatever_its_score(kernel: AttentionKernel, dtype: torch.dtype):
    allowed = torch.tensor([[True, True, False], [False, False, False]])
    quiet = torch.tensor([[0.5, 2.0, 0.1], [0.2, 0.3, 0.4]], dtype=dtype)
    for hidden in (1e30, -1e30, math.inf, -math.inf):
        loud = torch.where(allowed, quiet, hidden).requires_grad_()
        pattern = kernel.pattern(loud, allowed)
        assert torch.equal(pattern, kernel.pattern(quiet, allowed))
        assert (pattern[~allowed] == 0).all()
        (pattern * torch.arange(3)).sum().backward()
        assert loud.grad is not None
        assert loud.grad.isfinite().all()
        assert (loud.grad[~allowed] == 0).all()


def test_softmax_is_torchs_softmax_where_all_is_seen():
    scores = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    everything = torch.ones(4, 4, dtype=torch.bool)
    pattern = AttentionKernel("exp", "sum").pattern(scores, everything, blind_rows=False)
    assert torch.allclose(pattern, scores.softmax(-1), rtol=1e-14)


@pytest.mark.parametrize("similarity", ["exp", "gaussian", "laplace"])
def test_normalised_scores_never_overflow(similarity: str):
    allowed = torch.ones(3, 3).tril().bool()
    for size in (1e3, -1e3, 1e30):
        scores = size * torch.tensor([[1.0, 2, 3], [2, 1, 3], [1, 2, 3]])
        pattern = AttentionKernel(similarity, "sum").pattern(scores, allowed)
        assert torch.allclose(pattern.sum(-1), torch.ones(3))


def test_a_row_orthogonal_to_every_key_is_a_row_of_zeros():
    q = torch.tensor([[-1.0, -2.0], [1.0, 0.0]], requires_grad=True)
    k = torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    kernel = AttentionKernel("relu", "sum")
    pattern = kernel.pattern(kernel.scores(q, k, 2), torch.ones(2, 2, dtype=torch.bool))
    assert torch.equal(pattern, torch.zeros(2, 2))
    pattern.sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_laplace_distances_are_exact_far_from_the_origin():
    q = torch.tensor([[1e4, 0.0], [1e4, 1e-6]], dtype=torch.float64, requires_grad=True)
    scores = AttentionKernel("laplace").scores(q, q.detach(), 2)
    assert torch.allclose(scores, torch.tensor([[0, -1e-6], [-1e-6, 0]], dtype=torch.float64), rtol=1e-12, atol=0)
    scores.sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_second_derivatives_exist(similarity: str):
    kernel = AttentionKernel(similarity, "sum")
    q, k = (u[0, 1:4].clone().requires_grad_() for u in queries_and_keys())
    allowed = torch.ones(3, 3, dtype=torch.bool)

    def out(q: Tensor, k: Tensor) -> Tensor:
        return kernel.pattern(kernel.scores(q.abs() + 1, k.abs() + 1, 3, square_plus_one), allowed)[:, :2]

    assert torch.autograd.gradcheck(out, (q, k))
    assert torch.autograd.gradgradcheck(out, (q, k))


def test_only_the_identity_without_normalisation_is_cubic():
    assert [k for k in ALL if k.is_linear] == [AttentionKernel("linear", "none", scale) for scale in SCALES]
    assert {k.similarity for k in ALL if k.is_feature_map} == {*FEATURE_MAPS, LEARNED}


def test_kernels_read_well():
    assert str(AttentionKernel()) == "linear"
    assert str(AttentionKernel("exp", "sum", "sqrt_d_head")) == "softmax, scores × 1/√d_head"
    assert str(AttentionKernel("relu", "sum", "n")) == "relu, rows normalised, scores × 1/n"
    assert len({str(kernel) for kernel in ALL}) == len(ALL)


@pytest.mark.parametrize("kernel", ALL, ids=str)
def test_dictionary_round_trip(kernel: AttentionKernel):
    assert AttentionKernel(**kernel.to_dict()) == kernel


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        ("similarity", "linear, relu, elu1, uniform, learned, exp, gaussian, laplace"),
        ("normalisation", "none, sum"),
        ("scale", "none, sqrt_d_head, n"),
    ],
)
def test_unknown_settings_list_the_known(setting: str, known: str):
    with pytest.raises(ValueError, match=f"unknown kernel {setting} 'cosine'; known: {known}"):
        AttentionKernel(**{setting: "cosine"})


def test_a_learned_map_must_be_given():
    with pytest.raises(ValueError, match="feature map is learned; pass it as `learned`"):
        AttentionKernel(LEARNED).scores(*queries_and_keys(), 5)
