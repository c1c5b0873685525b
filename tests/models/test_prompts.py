"""Contract of every prompt family, and what is particular to each."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.prompts import (
    FAMILIES,
    CovarianceFactors,
    GaussianRegression,
    HaarNystrom,
    KernelNystrom,
    LogUniformSpectrum,
    Prompts,
    StandardRegression,
    UniformRegression,
    family_from_dict,
)

EXAMPLES = [
    LogUniformSpectrum(n=7, d=4, n_query=3, d_out=2, kappa=20),
    LogUniformSpectrum(n=5, d=5),
    LogUniformSpectrum(n=6, d=5, n_query=2, d_out=3, rank=3, scale=0.5),
    LogUniformSpectrum(n=4, d=6, n_query=2, d_out=2),
    CovarianceFactors(),
    CovarianceFactors(n=6, d=5, n_query=1, d_out=1, rank=3, decay=0.5, scale=2),
    HaarNystrom(n=6, n_query=3, kappa=30),
    KernelNystrom(n=6, n_query=2),
    KernelNystrom(n=5, n_query=2, kernel="laplace", ridge=0.1, scale=3),
    UniformRegression(n=10, d=10),
    UniformRegression(n=7, d=3, n_query=2, scale=2),
    GaussianRegression(n=20, d=5),
    GaussianRegression(n=6, d=6, n_query=3, scale=0.5),
    StandardRegression(n=8, d=4, n_query=2, scale=0.5),
]
every_family = pytest.mark.parametrize("family", EXAMPLES, ids=str)


def answer(prompts: Prompts) -> torch.Tensor:
    """B A⁺ C by another road: LAPACK's least squares for deficient matrices."""
    return prompts.B @ torch.linalg.lstsq(prompts.A, prompts.C, rcond=1e-11, driver="gelsd").solution


@every_family
def test_shapes_and_mask(family):
    prompts = family.sample(5, seed=1)
    (x, y), queries = family.widths, family.queries
    n = prompts.A.shape[1]
    assert prompts.count == 5 and prompts.n_query == queries and prompts.d_out == y
    assert prompts.A.shape == (5, n, x) and prompts.B.shape == (5, queries, x) and prompts.C.shape == (5, n, y)
    assert prompts.tokens[:, n:, x:].eq(0).all()
    assert prompts.tokens.isfinite().all() and prompts.target.isfinite().all()


@every_family
def test_target_is_the_completion(family):
    prompts = family.sample(20, seed=2)
    torch.testing.assert_close(prompts.target, answer(prompts), rtol=1e-7, atol=1e-9)


@every_family
def test_completion_keeps_the_rank_of_A(family):
    prompts = family.sample(20, seed=3)
    rank = torch.linalg.matrix_rank(prompts.A, rtol=1e-10)
    assert torch.equal(torch.linalg.matrix_rank(prompts.full, rtol=1e-10), rank)


@every_family
def test_seeds(family):
    first, again, other = (family.sample(3, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.target, again.target)
    assert not torch.equal(first.tokens, other.tokens)


@every_family
def test_single_precision_is_the_same_prompt(family):
    single = family.sample(3, seed=5, dtype=torch.float32)
    double = family.sample(3, seed=5)
    assert single.tokens.dtype == single.target.dtype == torch.float32 and double.tokens.dtype == torch.float64
    assert torch.equal(single.tokens, double.tokens.float())


@every_family
def test_sampling_leaves_the_global_generator_alone(family):
    before = torch.get_rng_state()
    family.sample(2, seed=0)
    assert torch.equal(before, torch.get_rng_state())


@every_family
def test_round_trip(family):
    assert family_from_dict(family.to_dict()) == family


@every_family
def test_layout_reads_the_answer(family):
    prompts = family.sample(4, seed=0)
    layout = family.layout(sign=-1)
    flipped = prompts.full
    flipped[:, -family.queries :, family.widths[0] :] *= -1
    assert layout.n_context(prompts.tokens.shape[1]) == prompts.A.shape[1]
    assert torch.equal(layout.predict(flipped), prompts.target)


@every_family
def test_edges_are_other_prompts_of_the_same_width(family):
    edges = family.edges()
    assert len(edges) >= 3 and all(edge != family for edge in edges.values())
    for edge in edges.values():
        prompts = edge.sample(2, seed=0)
        assert edge.widths == family.widths and edge.queries == family.queries
        assert prompts.tokens.isfinite().all()


@every_family
def test_scale_multiplies_the_whole_prompt(family):
    twice = replace(family, scale=2 * family.scale).sample(4, seed=0)
    once = family.sample(4, seed=0)
    torch.testing.assert_close(twice.full, 2 * once.full, rtol=1e-10, atol=1e-12)


@every_family
def test_a_sample_has_at_least_one_prompt(family):
    with pytest.raises(ValueError, match="count=0 must be at least 1"):
        family.sample(0, seed=0)


@given(
    n=st.integers(1, 9),
    d=st.integers(1, 9),
    n_query=st.integers(1, 4),
    d_out=st.integers(1, 4),
    kappa=st.floats(1, 100),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=40)
def test_log_uniform_at_any_size(n, d, n_query, d_out, kappa, seed):
    rank = min(n, d)
    family = LogUniformSpectrum(n, d, n_query, d_out, kappa if rank > 1 else 1.0)
    prompts = family.sample(3, seed=seed)
    sigma = torch.linalg.svdvals(prompts.A)
    torch.testing.assert_close(sigma[:, 0], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(sigma[:, rank - 1], torch.full((3,), 1 / family.kappa, dtype=torch.float64))
    torch.testing.assert_close(prompts.target, answer(prompts), rtol=1e-8, atol=1e-10)


@given(n=st.integers(1, 8), d=st.integers(1, 8), rank=st.integers(1, 8), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_covariance_factors_at_any_size(n, d, rank, seed):
    rank = min(rank, n, d)
    prompts = CovarianceFactors(n, d, rank=rank).sample(3, seed=seed)
    torch.testing.assert_close(prompts.full[:, -2:, -2:], prompts.target)
    assert torch.linalg.matrix_rank(prompts.full, rtol=1e-9).le(rank).all()


def test_log_uniform_spectrum_is_uniform_in_the_logarithm():
    prompts = LogUniformSpectrum(n=6, d=6, kappa=10).sample(4000, seed=0)
    inner = -torch.linalg.svdvals(prompts.A)[:, 1:-1].log10()
    assert inner.mean().item() == pytest.approx(0.5, abs=0.01)
    assert inner.var().item() == pytest.approx(1 / 12, abs=0.005)


def test_haar_factors_have_no_preferred_direction():
    prompts = LogUniformSpectrum(n=4, d=3, kappa=5).sample(20000, seed=0)
    gram = (prompts.A.mT @ prompts.A).mean(0)
    isotropic = gram.trace() / 3 * torch.eye(3, dtype=gram.dtype)
    torch.testing.assert_close(gram, isotropic, atol=0.01, rtol=0)


def test_published_family_has_the_published_variance():
    prompts = CovarianceFactors().sample(20000, seed=0)
    expected = sum(0.49**i for i in range(10)) / 10
    assert prompts.target.var().item() == pytest.approx(expected, rel=0.05)
    assert prompts.tokens.shape == (20000, 20, 20) and prompts.target.shape == (20000, 2, 2)


def test_nystrom_prompts_are_positive_semidefinite():
    for family in (HaarNystrom(n=5, n_query=3), KernelNystrom(n=5, n_query=3)):
        full = family.sample(20, seed=0).full
        torch.testing.assert_close(full, full.mT)
        assert torch.linalg.eigvalsh(full).min() > -1e-12
    sigma = torch.linalg.svdvals(HaarNystrom(n=5, n_query=3, kappa=7).sample(20, seed=0).A)
    torch.testing.assert_close(sigma[:, 0] / sigma[:, -1], torch.full((20,), 7, dtype=torch.float64))


def test_noise_moves_what_is_seen_and_not_the_answer():
    clean = LogUniformSpectrum(n=50, d=5, d_out=4)
    noisy = replace(clean, noise=0.1).sample(50, seed=0)
    assert torch.equal(noisy.A, clean.sample(50, seed=0).A)
    assert torch.equal(noisy.target, clean.sample(50, seed=0).target)
    assert (noisy.C - clean.sample(50, seed=0).C).std().item() == pytest.approx(0.1, rel=0.05)
    for clean in (UniformRegression(n=50, d=5), GaussianRegression(n=50, d=5)):
        noisy, quiet = replace(clean, noise=0.1).sample(50, seed=0), clean.sample(50, seed=0)
        assert torch.equal(noisy.target, quiet.target) and torch.equal(noisy.A, quiet.A)
        assert (noisy.C - quiet.C).std().item() == pytest.approx(0.1, rel=0.05)
    noisy, clean = CovarianceFactors(noise=0.1).sample(50, seed=0), CovarianceFactors().sample(50, seed=0)
    assert torch.equal(noisy.target, clean.target) and noisy.tokens[:, -2:, -2:].eq(0).all()
    assert (noisy.A - clean.A).std().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    "family",
    [
        LogUniformSpectrum(n=6, d=4),
        LogUniformSpectrum(n=6, d=5, rank=3, scale=2),
        CovarianceFactors(rank=4),
        UniformRegression(n=6, d=4, scale=2),
        GaussianRegression(n=6, d=4),
        StandardRegression(n=6, d=4),
    ],
    ids=str,
)
def test_spanning_queries_have_the_second_moment_of_random_ones(family):
    """Then any linear prediction has the same expected squared error over both."""
    random = replace(family, n_query=1).sample(20000, seed=0)
    spanning = family.spanning().sample(20000, seed=0)
    moment = (random.B.mT @ random.B).mean(0)
    torch.testing.assert_close((spanning.B.mT @ spanning.B).mean(0), moment, rtol=0.1, atol=0.05 * moment.max().item())
    torch.testing.assert_close(spanning.target, answer(spanning), rtol=1e-7, atol=1e-9)


def test_spanning_queries_are_orthonormal_on_the_row_space():
    B = LogUniformSpectrum(n=6, d=5, rank=3).spanning().sample(4, seed=0).B
    torch.testing.assert_close(B @ B.mT, torch.eye(3, dtype=B.dtype).expand(4, 3, 3))


def test_nystrom_queries_are_no_independent_draw():
    assert HaarNystrom(n=4, n_query=2).spanning() is None and KernelNystrom(n=4, n_query=2).spanning() is None
    assert CovarianceFactors(noise=0.1).spanning() is None


def test_uniform_regression_is_the_setting_of_the_literature():
    prompts = UniformRegression(n=10, d=10).sample(20000, seed=0)
    inputs = torch.cat([prompts.A, prompts.B], dim=1)
    assert inputs.abs().max().item() == pytest.approx(0.5, abs=1e-5) and inputs.abs().max() <= 0.5
    assert inputs.var().item() == pytest.approx(1 / 12, rel=0.01)
    assert inputs.pow(4).mean().item() == pytest.approx(1 / 80, rel=0.01)
    weights = torch.linalg.lstsq(prompts.A, prompts.C).solution
    central = weights.abs().median().item()
    assert central == pytest.approx(0.6745, rel=0.02)  # the median of |w| for w standard normal
    assert prompts.target.shape == (20000, 1, 1) and prompts.target.var().item() == pytest.approx(10 / 12, rel=0.05)


def test_gaussian_regression_has_labels_of_variance_1():
    prompts = GaussianRegression(n=20, d=5, noise=0.3).sample(20000, seed=0)
    assert prompts.target.var().item() == pytest.approx(1, rel=0.05)
    assert prompts.C.var().item() == pytest.approx(1.09, rel=0.05)
    assert prompts.A.pow(4).mean().item() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("family", [UniformRegression(n=3, d=5, n_query=4), GaussianRegression(n=2, d=5, n_query=4)])
def test_with_few_rows_the_answer_is_the_label(family):
    """The labels of 5 queries then still are those of one weight vector, which the context's labels belong to."""
    prompts = replace(family, n_query=5).sample(10, seed=0)
    weights = torch.linalg.solve(prompts.B, prompts.target)
    torch.testing.assert_close(prompts.A @ weights, prompts.C, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_ridge_with_the_penalty_of_the_noise_is_the_best_ridge_for_gaussian_regression(noise):
    family = GaussianRegression(n=8, d=5, noise=noise)
    prompts = family.sample(20000, seed=1)
    gram, moment = prompts.A.mT @ prompts.A, prompts.A.mT @ prompts.C

    def error(penalty):
        weights = torch.linalg.solve(gram + penalty * torch.eye(5, dtype=gram.dtype), moment)
        return (prompts.B @ weights - prompts.target).square().mean().item()

    best = noise**2 * family.d
    assert error(best) < min(error(best / 3), error(3 * best))


def test_prompts_move():
    prompts = LogUniformSpectrum(n=4, d=3).sample(2, seed=0).to(dtype=torch.float32, device="cpu")
    assert prompts.tokens.dtype == prompts.target.dtype == torch.float32


def test_prompts_refuse_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="more rows than queries"):
        Prompts(torch.zeros(2, 3, 4), torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match="more columns than y columns"):
        Prompts(torch.zeros(2, 3, 4), torch.zeros(2, 1, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogUniformSpectrum(n=5, d=3, kappa=0.5), "kappa=0.5 is a condition number and must be at least 1"),
        (lambda: LogUniformSpectrum(n=5, d=3, kappa=float("nan")), "kappa=nan"),
        (lambda: LogUniformSpectrum(n=5, d=3, rank=4), r"rank=4 must lie between 1 and min\(n, d\) = 3"),
        (lambda: LogUniformSpectrum(n=5, d=3, rank=0), "rank=0 must lie between"),
        (lambda: LogUniformSpectrum(n=5, d=1, kappa=2), "one singular value has kappa=1"),
        (lambda: LogUniformSpectrum(n=0, d=3), "n=0 must be at least 1"),
        (lambda: LogUniformSpectrum(n=5, d=3, n_query=0), "n_query=0 must be at least 1"),
        (lambda: LogUniformSpectrum(n=5, d=3, scale=0), "scale=0 must be a positive"),
        (lambda: LogUniformSpectrum(n=5, d=3, noise=-1), "noise=-1 is a standard deviation"),
        (lambda: LogUniformSpectrum(n=5, d=3, rows="unit"), "unknown rows 'unit'; known: random, spanning"),
        (lambda: LogUniformSpectrum(n=5, d=3, rows="spanning"), "3 query rows span the row space, not n_query=1"),
        (lambda: CovarianceFactors(n=5, d=9, rank=6), r"rank=6 must lie between 1 and min\(n, d\) = 5"),
        (lambda: CovarianceFactors(decay=1.5), r"decay=1.5 must lie in \(0, 1\]"),
        (lambda: CovarianceFactors(noise=float("inf")), "noise=inf"),
        (lambda: HaarNystrom(n=4, n_query=2, kappa=0), "kappa=0"),
        (lambda: HaarNystrom(n=4, n_query=0), "n_query=0 must be at least 1"),
        (lambda: KernelNystrom(n=4, n_query=2, kernel="sinc"), "unknown kernel 'sinc'; known: rbf, laplace"),
        (lambda: KernelNystrom(n=4, n_query=2, lengthscale=-1), "lengthscale=-1 must be a positive"),
        (lambda: KernelNystrom(n=4, n_query=2, ridge=-1), "ridge=-1 must be 0 or more"),
        (lambda: KernelNystrom(n=4, n_query=2, dimension=0), "dimension=0 must be at least 1"),
        (lambda: UniformRegression(n=0, d=3), "UniformRegression: n=0 must be at least 1"),
        (lambda: GaussianRegression(n=3, d=3, noise=-1), "GaussianRegression: noise=-1 is a standard deviation"),
        (lambda: GaussianRegression(n=3, d=3, scale=0), "scale=0 must be a positive"),
        (lambda: UniformRegression(n=3, d=3, rows="spanning"), "3 query rows span the row space, not n_query=1"),
        (
            lambda: family_from_dict({"family": "Gaussian"}),
            f"unknown prompt family 'Gaussian'; known: {next(iter(FAMILIES))}",
        ),
        (
            lambda: family_from_dict({"family": "HaarNystrom", "n": 3, "m": 2}),
            "do not fit the prompt family HaarNystrom",
        ),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
