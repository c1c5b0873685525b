"""Transformers trained through their token forward: same loop, same promises."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp.kernels import AttentionKernel
from models import checkpoints
from models.config import TransformerConfig
from models.prompts import GaussianRegression, LogUniformSpectrum
from models.recipe import Recipe
from models.recipes import recipe_from_dict
from models.seeds import derived_seed
from models.trainer import DivergedError, Trainer
from models.training import train
from models.transformer_recipe import TransformerRecipe

CPU = torch.device("cpu")
SMALL = TransformerConfig(
    n_layers=2,
    n_heads=2,
    d_model=8,
    d_head=4,
    kernel=AttentionKernel("exp", "sum", "sqrt_d_head"),
    attn_only=False,
    d_mlp=16,
    normalization_type="LN",
    use_biases=True,
    d_in=2,
    d_out=1,
)
TINY = TransformerRecipe(
    "tiny-softmax",
    "A small one.",
    GaussianRegression(n=6, d=1),
    architecture=SMALL,
    shortest=2,
    queries=3,
    steps=300,
    rate=1e-2,
    batch=32,
    warmup=10,
    weight_decay=0.01,
    clip=1.0,
)


def run(recipe: TransformerRecipe, directory: Path, **options):
    return train(recipe, directory, device="cpu", progress=False, **options)


def test_round_trip():
    assert recipe_from_dict(TINY.to_dict()) == TINY
    assert isinstance(recipe_from_dict(TINY.to_dict()), TransformerRecipe)
    linear = Recipe("r", "", LogUniformSpectrum(n=3, d=2, kappa=2.0), n_layers=1, steps=1, rate=0.1)
    assert recipe_from_dict(linear.to_dict()) == linear


def test_it_learns_and_ships_a_model_of_one_query(tmp_path):
    trained = run(TINY, tmp_path)
    assert trained.metadata["metrics"]["squared_error"]["mean"] < 0.3
    assert trained.metadata["metrics"]["zero_squared_error"]["mean"] > 0.8
    loaded = checkpoints.load(tmp_path)
    assert loaded.cfg == SMALL and loaded.layout == TINY.layout and loaded.layout.n_query == 1
    assert recipe_from_dict(trained.metadata["recipe"]) == TINY


def test_the_shipped_model_answers_each_query_as_in_training():
    """Queries do not see each other."""
    parameters = TINY.parameters(seed=1)
    prompts = TINY.training_prompts(5, CPU)
    together = TINY.answers(parameters, prompts)
    model, context = TINY.to_model(parameters), prompts.tokens[:, :-3]
    for query in range(3):
        alone = torch.cat([context, prompts.tokens[:, query - 3 :][:, :1]], dim=1)
        torch.testing.assert_close(model.predict(alone)[:, 0], together[:, query], rtol=1e-5, atol=1e-6)


def test_the_loss_of_a_step_is_the_mean_squared_error():
    trainer = Trainer(TINY, 4, CPU)
    prompts = TINY.training_prompts(derived_seed(4, 0, 0, 0), CPU)
    expected = (trainer.parameters.predict(prompts.tokens) - prompts.target).square().mean().item()
    assert trainer.advance() == pytest.approx(expected, rel=1e-6)


def test_the_number_of_context_rows_is_uniform():
    counts = torch.tensor([TINY.training_prompts(seed, CPU).A.shape[1] for seed in range(1000)]).bincount(minlength=7)
    assert counts[:2].eq(0).all() and counts[2:].min() > 150 and len(counts) == 7
    always = replace(TINY, shortest=None)
    assert {always.training_prompts(seed, CPU).A.shape[1] for seed in range(20)} == {6}
    assert TINY.training_prompts(0, CPU).target.shape == (32, 3, 1)


def test_weight_decay_acts_on_matrices_alone():
    trainer = Trainer(TINY, 0, CPU)
    decayed, others = (group["params"] for group in trainer.optimiser.param_groups)
    assert [group["weight_decay"] for group in trainer.optimiser.param_groups] == [0.01, 0.0]
    assert all(p.ndim >= 2 and p.std() > 0 for p in decayed)
    starts = {name for name, p in trainer.parameters.named_parameters() if any(p is other for other in others)}
    assert {"embed.b_E", "unembed.b_U", "blocks.0.ln1.w", "blocks.1.mlp.b_in", "blocks.1.attn.b_Q"} <= starts
    assert len(decayed) + len(others) == len(list(trainer.parameters.parameters()))


@pytest.mark.parametrize("clip", [0.01, None])
def test_the_gradient_is_clipped(clip):
    trainer = Trainer(replace(TINY, clip=clip), 0, CPU)
    trainer.advance()
    norm = math.sqrt(sum(p.grad.square().sum().item() for p in trainer.parameters.parameters()))
    assert norm > 0.1 if clip is None else norm == pytest.approx(clip, rel=1e-3)


def test_an_interrupted_run_ends_in_the_same_weights(tmp_path):
    def interrupt(step, model, loss):
        if step > 20:
            raise KeyboardInterrupt

    short = replace(TINY, steps=60)
    with pytest.raises(KeyboardInterrupt):
        run(short, tmp_path / "stopped", callbacks=[interrupt])
    resumed, whole = run(short, tmp_path / "stopped", resume=True), run(short, tmp_path / "whole")
    pairs = zip(resumed.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)


def test_seeds_decide_the_weights():
    first, again, other = (TINY.parameters(seed).W_Q for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_non_finite_step_goes_back_and_halves_the_rate():
    trainer = Trainer(TINY, 0, CPU)
    for _ in range(105):
        trainer.advance()
    before = trainer.good["parameter.embed.W_E"].clone()
    with torch.no_grad():
        trainer.parameters.unembed.W_U.fill_(math.inf)
    assert math.isnan(trainer.advance())
    assert trainer.step == 100 and trainer.rollbacks == 1
    assert torch.equal(trainer.parameters.embed.W_E, before)


def test_a_run_that_never_gets_finite_is_an_error(tmp_path):
    with pytest.raises(DivergedError, match=r"recipe 'tiny-softmax', seed 0: 31 non-finite steps.*lower its rate"):
        run(replace(TINY, architecture=replace(SMALL, init_std=1e30)), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": LogUniformSpectrum(n=6, d=1, kappa=1.0)}, "trained on regression prompts .* LogUniformSpectrum"),
        ({"shortest": 7}, "shortest=7 must lie between 1 and the family's n=6"),
        ({"shortest": 0}, "shortest=0 must lie between 1"),
        ({"queries": 0}, "queries=0 must be a positive whole number"),
        ({"clip": 0.0}, "clip=0.0 must be positive"),
        ({"batch": 0}, "batch=0 must be a positive whole"),
        ({"warmup": 0}, "warmup=0 must be a positive whole"),
        ({"family": GaussianRegression(n=6, d=3)}, "d_in=4 and d_out=1, and this one has 2 and 1"),
        ({"architecture": replace(SMALL, d_out=None)}, "and this one has 2 and None"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)
