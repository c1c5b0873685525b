"""The recipes by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from models.prompts import (
    CovarianceFactors,
    GaussianRegression,
    HaarNystrom,
    LogUniformSpectrum,
    UniformRegression,
)
from models.recipe import Recipe
from models.recipes_of_processes import PROCESSES
from models.training_settings import TrainingSettings
from models.transformer_recipe import TransformerRecipe

__all__ = ["RECIPES", "Recipe", "TransformerRecipe", "recipe", "recipe_from_dict"]


def recipe_from_dict(values: Mapping[str, Any]) -> TrainingSettings:
    """The recipe that its `to_dict` described: a `TransformerRecipe` if it names an architecture, else a `Recipe`."""
    return (TransformerRecipe if "architecture" in values else Recipe).from_dict(values)


def recipe(name: str) -> TrainingSettings:
    """A recipe by its name.

    Raises:
        ValueError: no recipe has that name; the message lists those that exist.
    """
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}")
    return RECIPES[name]


_D10 = LogUniformSpectrum(n=10, d=10, n_query=5, d_out=5, kappa=10)

_PUBLISHED = Recipe(
    name="eagle",
    about="The published setting of arXiv 2509.19702: Gaussian factors, 18 + 2 rows and columns, rank 10.",
    family=CovarianceFactors(),
    n_layers=4,
    steps=20000,
    rate=1e-2,
    batch=256,
    weight_decay=0.1,
    init_std=0.02,
    error="squared",
    sharpness=1e4,
    precision="float64",
)

_BOUNDED = Recipe(
    name="eagle-d10",
    about="Block completion at d = 10, d' = 5 with singular values over [1/10, 1], four layers.",
    family=_D10,
    n_layers=4,
    steps=12000,
    rate=3e-2,
    weight_decay=0.03,
    sharpness=1e5,
)

_CENTRALISED = (
    _PUBLISHED,
    replace(
        _PUBLISHED,
        name="eagle-noise",
        about="The published setting with noise of variance 0.01 on all that is seen; the answers are those without.",
        family=CovarianceFactors(noise=0.1),
    ),
    _BOUNDED,
    *(
        replace(
            _BOUNDED,
            name=f"eagle-depth{depth}",
            about=f"The prompts of eagle-d10 with {depth} layer{'s' * (depth > 1)}.",
            n_layers=depth,
        )
        for depth in (1, 2, 3)
    ),
    replace(
        _BOUNDED,
        name="eagle-deep",
        about="The prompts of eagle-d10 with five layers.",
        n_layers=5,
        steps=16000,
        rate=2e-2,
        sharpness=1e7,
    ),
    replace(
        _BOUNDED,
        name="eagle-scalar",
        about="Scalar prediction, the in-context regression of one number: d = 10, one query, one label.",
        family=LogUniformSpectrum(n=10, d=10, n_query=1, d_out=1, kappa=10),
    ),
    replace(
        _BOUNDED,
        name="eagle-nystrom",
        about="Nyström extrapolation of Haar-rotated positive semidefinite matrices, 10 + 5 rows and columns.",
        family=HaarNystrom(n=10, n_query=5, kappa=10),
    ),
    replace(_BOUNDED, name="eagle-8head", about="The prompts of eagle-d10 with eight heads.", n_heads=8),
)

_RANK_LIMITED = (
    replace(
        _PUBLISHED,
        name="eagle-lowrank",
        about="The published setting with one head of rank 5 of 18: Q of rank 5, V of rank 5 + 2.",
        qk_rank=5,
        value_rank=7,
    ),
    replace(
        _BOUNDED,
        name="eagle-lowrank-2head",
        about="Two heads with Q of rank 3 of 6: completion at d = 6, d' = 3 with singular values over [1/10, 1].",
        family=LogUniformSpectrum(n=6, d=6, n_query=3, d_out=3, kappa=10),
        n_heads=2,
        qk_rank=3,
    ),
)

_DISTRIBUTED = (
    replace(
        _BOUNDED,
        name="eagle-distributed",
        about="Four machines of 20 rows, d = 5: a head for context rows, which see their machine, and one for queries.",
        family=LogUniformSpectrum(n=80, d=5, n_query=2, d_out=2, kappa=10),
        n_heads=2,
        machines=4,
        visibility=(("machine", "none"), ("none", "context")),
        sharpness=100.0,
    ),
    replace(
        _PUBLISHED,
        name="eagle-distributed-heads",
        about="The published distributed setting: three machines of 6 rows, one head a machine, which tells queries.",
        steps=8000,
        batch=128,
        n_heads=3,
        machines=3,
        visibility=tuple((f"machine {machine}", f"machine {machine}") for machine in range(3)),
    ),
)

_REGRESSION = (
    Recipe(
        name="lsa-1layer",
        about="The setting of arXiv 2212.07677: one layer, d = 10, 10 uniform context points, plain squared error.",
        family=UniformRegression(n=10, d=10),
        n_layers=1,
        steps=5000,
        rate=1e-2,
        batch=512,
        error="squared",
        sharpness=1e-4,
    ),
    replace(
        PROCESSES[0],
        name="linreg-softmax",
        about="Softmax attention, MLPs and layer norms on in-context linear regression: d = 5, 1 to 20 noisy points.",
        family=GaussianRegression(n=20, d=5, noise=0.3),
        architecture=replace(PROCESSES[0].architecture, d_in=6),
        queries=8,
    ),
)

RECIPES: dict[str, TrainingSettings] = {
    entry.name: entry for entry in (*_CENTRALISED, *_RANK_LIMITED, *_DISTRIBUTED, *_REGRESSION, *PROCESSES)
}
