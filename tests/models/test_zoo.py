"""The models that ship: they load, they are what their record says, and the best of their seeds."""

from dataclasses import replace

import pytest
import torch

from models import checkpoints, zoo
from models.evaluation import evaluate
from models.packs import read_pack
from models.prompts import LogUniformSpectrum
from models.recipes import RECIPES, Recipe, TransformerRecipe, recipe_from_dict
from models.training import train
from models.zoo.build import build, merit

SHIPPED = zoo.names()
every_model = pytest.mark.parametrize("name", SHIPPED)
LIMITS = {"eagle-d10": 7.5e-3, "eagle-scalar": 7.5e-3, "eagle-nystrom": 5e-3, "eagle-deep": 1e-4, "eagle-8head": 1e-2}
"""The largest pooled relative error that a shipped model may have."""


def test_every_recipe_ships_a_model():
    assert set(RECIPES) == set(SHIPPED)


@every_model
def test_the_model_is_what_its_record_says(name):
    model, record = zoo.load(name), zoo.metadata(name)
    recipe = recipe_from_dict(record["recipe"])
    assert recipe == RECIPES[name] and record["prior"] == "none" == recipe.prior
    assert zoo.family(name) == recipe.family and model.layout.to_dict() == recipe.layout.to_dict()
    assert model.dtype == torch.float32
    if isinstance(recipe, TransformerRecipe):
        assert model.cfg == recipe.architecture
        return
    sizes = recipe.sizes
    assert (model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_model) == (sizes.n_layers, sizes.n_heads, sizes.d_model)
    assert model.cfg.d_head == sizes.d_head
    assert model.cfg.kernel.is_linear and model.cfg.is_linear_attention


@every_model
def test_its_evaluation_can_be_repeated(name):
    stored = zoo.metadata(name)["metrics"]
    again = evaluate(zoo.load(name), zoo.family(name), count=stored["prompts"], seed=stored["seed"]).to_dict()
    assert again["relative_error"]["median"] == pytest.approx(stored["relative_error"]["median"], rel=1e-6)
    assert again["squared_error"]["q90"] == pytest.approx(stored["squared_error"]["q90"], rel=1e-6)
    assert again["blown_up"] == stored["blown_up"]


def seeds_of(name: str) -> list[int]:
    """Two of the models on Gaussian processes, three of the others."""
    return [0, 1] if name.startswith("gp-") else [0, 1, 2]


@every_model
def test_it_is_the_best_of_its_seeds_and_all_are_stored(name):
    record = zoo.metadata(name)
    assert [entry["seed"] for entry in record["seeds"]] == seeds_of(name)
    (shipped,) = (entry for entry in record["seeds"] if entry["shipped"])
    assert shipped["seed"] == record["seed"] and shipped["metrics"] == record["metrics"]
    assert merit(RECIPES[name], shipped) == min(merit(RECIPES[name], entry) for entry in record["seeds"])


@every_model
def test_all_seeds_ship_and_the_best_is_the_model(name):
    seeds, shipped = zoo.seeds(name), zoo.metadata(name)["seed"]
    assert list(seeds) == seeds_of(name)
    for seed, model in seeds.items():
        same = [
            torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in (model, zoo.load(name))), strict=True)
        ]
        assert all(same) == (seed == shipped)


@pytest.mark.parametrize("name", zoo.with_snapshots())
def test_snapshots_go_from_the_start_to_the_model(name):
    snapshots, last = zoo.snapshots(name), zoo.load(name).state_dict()
    assert next(iter(snapshots)) == 0 and list(snapshots)[-1] == RECIPES[name].steps
    assert all(torch.equal(tensor, last[key]) for key, tensor in snapshots[RECIPES[name].steps].state_dict().items())
    assert not torch.equal(snapshots[0].W_Q, zoo.load(name).W_Q)


def test_models_without_snapshots_say_which_have_them():
    with pytest.raises(ValueError, match="no snapshots of 'eagle' ship; of these they do: eagle-d10"):
        zoo.snapshots("eagle")


@pytest.mark.parametrize("name", LIMITS)
def test_accuracy_on_fresh_prompts(name):
    evaluation = evaluate(zoo.load(name), zoo.family(name), count=1000, seed=12345)
    assert evaluation.pooled_relative_error < LIMITS[name] and evaluation.blown_up == 0


def test_accuracy_in_the_published_setting():
    evaluation = evaluate(zoo.load("eagle"), zoo.family("eagle"), count=4000, seed=12345)
    assert evaluation.squared_error.median < 1.3e-3
    assert evaluation.squared_error.central_mean < 2.5e-3 < 0.05 < evaluation.zero_squared_error.median
    assert evaluation.blown_up < 20


@every_model
def test_prompts_are_those_of_the_task(name):
    prompts = zoo.prompts(name, 3, seed=4, dtype=torch.float32)
    same = RECIPES[name].family.sample(3, seed=4, dtype=torch.float32)
    assert torch.equal(prompts.tokens, same.tokens) and torch.equal(prompts.target, same.target)
    assert zoo.load(name).predict(prompts.tokens).shape == prompts.target.shape


@pytest.mark.parametrize("ask", [zoo.load, zoo.metadata, zoo.family, lambda name: zoo.prompts(name, 1)])
def test_an_unknown_name_lists_the_known(ask):
    with pytest.raises(ValueError, match=f"unknown model 'eagle-d11'; known: {', '.join(SHIPPED)}"):
        ask("eagle-d11")


def test_build_ships_the_best_seed_and_goes_on_with_runs(tmp_path):
    tiny = Recipe("tiny", "", LogUniformSpectrum(n=3, d=2, kappa=2.0), n_layers=1, steps=20, rate=0.05, batch=8)
    record = build(tiny, tmp_path / "runs", seeds=(0, 1), target=tmp_path / "zoo", device="cpu", progress=False)
    metadata = checkpoints.read_metadata(record)
    errors = [entry["metrics"]["pooled_relative_error"] for entry in metadata["seeds"]]
    assert metadata["metrics"]["pooled_relative_error"] == min(errors) and len(set(errors)) == 2
    assert list(read_pack(tmp_path / "zoo" / "seeds" / "tiny.safetensors", checkpoints.load(record))) == [0, 1]
    before = checkpoints.load(record).state_dict()
    build(tiny, tmp_path / "runs", seeds=(0, 1), target=tmp_path / "zoo", device="cpu", progress=False)
    assert all(torch.equal(before[name], tensor) for name, tensor in checkpoints.load(record).state_dict().items())


@pytest.mark.slow
def test_the_recipe_trains_a_good_model_again(tmp_path):
    shorter = replace(RECIPES["eagle-d10"], steps=5000)
    metrics = train(shorter, tmp_path, device="cpu", progress=False).metadata["metrics"]
    assert metrics["pooled_relative_error"] < 8e-3
