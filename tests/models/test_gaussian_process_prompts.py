"""Prompts of Gaussian processes: their moments, clusters, formats, and the recipes that train on them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.covariance import COVARIANCES
from interp.gaussian_process import posterior
from models.prompts import AlternatingPrompts, GaussianProcess, family_from_dict, interleaved
from models.recipes import RECIPES
from models.recipes_of_processes import PROCESSES

CPU = torch.device("cpu")
SIGMAS = 5  # tolerance of the moment tests, in standard errors
every_process = pytest.mark.parametrize("recipe", PROCESSES, ids=lambda recipe: recipe.name)


def is_zero_on_average(samples: torch.Tensor) -> bool:
    """Are the means over the first axis, of independent samples, 0 to 5 standard errors?"""
    return bool((samples.mean(0).abs() <= SIGMAS * samples.std(0) / len(samples) ** 0.5).all())


@pytest.mark.parametrize("name", COVARIANCES)
def test_labels_and_targets_have_the_covariance_k_and_noise_of_variance_lam(name):
    family = GaussianProcess(n=4, d=2, n_query=2, covariance=name, lengthscale=0.8, lam=0.3)
    prompts = family.sample(6000, seed=3)
    x = torch.cat([prompts.A, prompts.B], dim=1)
    values = torch.cat([prompts.C, prompts.target], dim=1)
    noise = torch.diag(torch.tensor([0.3] * 4 + [0.0] * 2, dtype=torch.float64))
    assert is_zero_on_average(values @ values.mT - family.kernel(x, x) - noise)
    assert is_zero_on_average(values)
    assert not is_zero_on_average(values @ values.mT - family.kernel(x, x))
    assert not is_zero_on_average(values @ values.mT - replace(family, lengthscale=0.6).kernel(x, x) - noise)


def test_functions_at_given_points_have_covariance_K():
    family = GaussianProcess(lengthscale=0.5)
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)[None, :, None].expand(8000, -1, -1)
    f = family.functions(x, torch.Generator().manual_seed(0))
    assert is_zero_on_average(f @ f.mT - family.kernel(x, x))


def test_without_noise_the_labels_lie_on_the_function():
    prompts = GaussianProcess(n=12, lam=0.0, lengthscale=0.6, n_query=3).sample(3, seed=0)
    family = GaussianProcess(n=12, lengthscale=0.6)
    found = posterior(family.kernel, 1e-9, prompts.A, prompts.C, prompts.B).mean
    assert (found - prompts.target).square().mean() < 0.05 * prompts.target.square().mean()


def test_the_posterior_mean_has_the_error_that_its_variance_says():
    family = GaussianProcess(n=10, d=1, lengthscale=0.4, lam=0.1)
    prompts = family.sample(4000, seed=1)
    found = posterior(family.kernel, family.lam, prompts.A, prompts.C, prompts.B)
    assert is_zero_on_average((found.mean - prompts.target)[..., 0].square() - found.variance)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_inputs_are_uniform_in_the_cube(d):
    x = GaussianProcess(n=20, d=d).sample(1000, seed=0).A
    assert x.shape == (1000, 20, d) and x.abs().max() <= 1
    assert is_zero_on_average(x.flatten(0, 1)) and is_zero_on_average(x.flatten(0, 1).square() - 1 / 3)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_clustered_inputs_lies_around_one_centre(share):
    family = GaussianProcess(n=40, clustered=share, cluster_width=0.01)
    x = torch.cat([(prompts := family.sample(400, seed=2)).A, prompts.B], dim=1)[..., 0]
    near = (x[:, :, None] - x[:, None]).abs().lt(0.06).sum(-1).amax(-1) / x.shape[1]
    background = (1 - share) * 0.06  # uniform inputs that happen to lie there, and the densest spot without a cluster
    assert near.mean().item() == pytest.approx(share + background, abs=0.02 if share else 0.2)


@pytest.mark.parametrize("width", [0.02, 0.1])
def test_a_cluster_has_its_width(width):
    x = GaussianProcess(n=50, d=2, clustered=1.0, cluster_width=width).sample(800, seed=4).A
    inside = x.abs().amax((1, 2)) < 1  # centres at the border are clamped
    assert inside.sum() > 300
    assert x[inside].std(1).mean().item() == pytest.approx(width, rel=0.02)
    assert x.abs().max() <= 1


def test_clusters_make_row_sums_uneven():
    def spread(family):
        x = family.sample(200, seed=0).A
        D = family.kernel(x, x).sum(-1)
        return (D.std(1) / D.mean(1)).mean()

    assert spread(GaussianProcess(clustered=0.6)) > 1.5 * spread(GaussianProcess())


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 6),
    d=st.integers(1, 3),
    clustered=st.sampled_from([0.0, 0.5]),
    covariance=st.sampled_from(list(COVARIANCES)),
    seed=st.integers(0, 10**6),
)
def test_both_formats_carry_the_same_problems(n, d, clustered, covariance, seed):
    pair = GaussianProcess(n, d, covariance=covariance, clustered=clustered)
    one = pair.sample(3, seed=seed)
    other = replace(pair, token_format="alternating").sample(3, seed=seed)
    assert isinstance(other, AlternatingPrompts) and other.tokens.shape == (3, 2 * n + 1, d + 1)
    for name in ("A", "B", "C", "target"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert other.tokens[:, ::2, d:].eq(0).all() and other.tokens[:, 1::2, :d].eq(0).all()
    assert torch.equal(interleaved(one).tokens, other.tokens)


def test_pair_tokens_and_who_sees_whom():
    family = GaussianProcess(n=3, d=2, n_query=2)
    prompts, layout = family.sample(2, seed=0), family.layout()
    assert prompts.tokens.shape == (2, 5, 3) and prompts.tokens[:, 3:, 2:].eq(0).all()
    allowed = layout.allowed(5, 1)[0]
    assert allowed[:3, :3].all() and not allowed[:, 3:].triu(-2)[:3].any()
    assert allowed[3].tolist() == [True, True, True, True, False]
    assert allowed[4].tolist() == [True, True, True, False, True]


def test_alternating_tokens_see_their_past():
    family = GaussianProcess(n=3, token_format="alternating")
    assert torch.equal(family.layout().allowed(7, 1)[0], torch.ones(7, 7).tril().bool())


def test_sequences_have_a_target_at_every_input_whose_noisy_labels_are_tokens():
    family = GaussianProcess(n=5, lam=0.2, token_format="alternating")
    found = family.sequences(4000, seed=0)
    assert found.tokens.shape == (4000, 11, 2) and found.target.shape == (4000, 6, 1) and found.n_query == 1
    noise = found.C - found.target[:, :5]
    assert is_zero_on_average(noise @ noise.mT - 0.2 * torch.eye(5, dtype=torch.float64))


def test_a_seed_is_the_same_prompts_and_another_is_not():
    family = GaussianProcess(n=4, clustered=0.5)
    first, again, other = (family.sample(3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.tokens, again.tokens) and not torch.equal(first.tokens, other.tokens)
    single = family.sample(3, seed=1, dtype=torch.float32)
    assert single.tokens.dtype == single.target.dtype == torch.float32
    torch.testing.assert_close(single.tokens.double(), first.tokens, rtol=1e-6, atol=1e-6)


def test_edges_and_plain_values():
    family = GaussianProcess(n=9, covariance="matern32", clustered=0.2)
    assert family_from_dict(family.to_dict()) == family
    assert set(family.edges()) == {"ℓ × 0.5", "ℓ × 2", "n = 4", "60 % clustered"}
    assert set(GaussianProcess(n=1).edges()) == {"ℓ × 0.5", "ℓ × 2", "60 % clustered"}
    for edge in family.edges().values():
        assert edge.sample(1, seed=0).tokens.isfinite().all() and edge != family


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengthscale": 0.0}, "lengthscale=0.0 must be positive and finite"),
        ({"lengthscale": -1.0}, "lengthscale=-1.0 must be positive and finite"),
        ({"lam": -0.1}, "lam=-0.1 is the variance of the noise and must be 0 or more"),
        ({"covariance": "rfb"}, "unknown covariance 'rfb'; known: rbf, matern12, matern32, laplace"),
        ({"token_format": "triple"}, "unknown token_format 'triple'; known: pair, alternating"),
        ({"token_format": "alternating", "n_query": 2}, "the alternating format takes one query, got n_query=2"),
        ({"clustered": 1.5}, r"clustered=1.5 is a share and must lie in \[0, 1\]"),
        ({"cluster_width": 0.0}, "cluster_width=0.0 must be a positive, finite number"),
        ({"n": 0}, "n=0 must be at least 1"),
        ({"n_query": 0}, "n_query=0 must be at least 1"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as refused:
        GaussianProcess(**options)
    assert "\n" not in str(refused.value)


def test_several_queries_have_no_alternating_form():
    prompts = GaussianProcess(n=3, n_query=2).sample(1, seed=0)
    with pytest.raises(ValueError, match="alternating prompts have one query, got 2"):
        interleaved(prompts)
    with pytest.raises(ValueError, match="inputs and labels sit in tokens of their own"):
        _ = GaussianProcess(n=3, token_format="alternating").sample(1, seed=0).full


@every_process
def test_every_recipe_trains_on_what_its_model_takes(recipe):
    assert RECIPES[recipe.name] == recipe
    small = replace(recipe, batch=3)
    prompts, parameters = small.training_prompts(0, CPU), small.parameters(0)
    answers = small.answers(parameters, prompts)
    assert answers.shape == prompts.target.shape and small.loss(answers, prompts.target).isfinite()


@every_process
def test_a_recipe_ships_a_model_of_one_query_that_answers_as_in_training(recipe):
    small = replace(recipe, batch=3)
    parameters = small.parameters(1)
    model, prompts = small.to_model(parameters), small.training_prompts(2, CPU)
    assert model.layout.n_query == 1
    last = small.answers(parameters, prompts)[:, -1]
    others = 1 if recipe.alternates else small.queries
    alone = torch.cat([prompts.tokens[:, : prompts.tokens.shape[1] - others], prompts.tokens[:, -1:]], dim=1)
    torch.testing.assert_close(model.predict(alone)[:, 0], last, rtol=1e-5, atol=1e-6)
