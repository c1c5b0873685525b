"""Recipes: complete, named settings of a training run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.prompts import CovarianceFactors, HaarNystrom, LogUniformSpectrum, PromptFamily, family_from_dict

ERRORS = ("relative", "squared")
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a trained linear-attention model, except the seed.

    The loss of a batch is the mean over prompts of log(1 + sharpness · e). For small errors that is sharpness · e; a
    prompt that the model blows up on keeps a gradient without drowning the others. The larger the sharpness, the more
    the typical prompt counts against the worst, and the fewer seeds end in a poor optimum. e of a prompt is

        "relative": ‖prediction - D*‖² / ‖D*‖²         "squared": the mean of (prediction - D*)² over the entries of D

    in both cases in expectation over the queries where the family has spanning ones. The optimiser is AdamW with a
    linear warm-up and a cosine from `rate` down to `final_rate` · `rate`; the weight decay empties the directions of
    the weights that nothing reads.

    Args:
        name, about: what it is called, and one sentence on what it trains.
        family: the prompts.
        n_layers, n_heads: sizes; d_head = d_model = x and y columns.
        steps, batch, rate, warmup, final_rate, betas, eps, weight_decay: of the optimiser.
        init_std: of the initial Q and V a layer.
        error, sharpness: of the loss.
        precision: "float32", or "float64" for prompts on which float32 overflows along the way.
        gain: a fixed scale gain^l for layer l, which is a prior informed by the solution; None for no such prior.
        sign: of the read-out.
    """

    name: str
    about: str
    family: PromptFamily
    n_layers: int
    steps: int
    rate: float
    n_heads: int = 1
    batch: int = 128
    warmup: int = 100
    final_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-12
    weight_decay: float = 0.0
    init_std: float = 0.1
    error: str = "relative"
    sharpness: float = 100.0
    precision: str = "float32"
    gain: float | None = None
    sign: float = -1.0

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("n_layers", "n_heads", "steps", "batch")}
        for name, value in {**sizes, "rate": self.rate, "sharpness": self.sharpness}.items():
            if not value > 0:
                raise ValueError(f"recipe {self.name!r}: {name}={value} must be positive")
        for name, known in (("error", ERRORS), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise ValueError(f"recipe {self.name!r}: unknown {name} {given!r}; known: {', '.join(known)}")

    @property
    def prior(self) -> str:
        """What the run was told about the solution."""
        return "none" if self.gain is None else f"layer l is scaled by {self.gain:g}^l"

    @property
    def dtype(self) -> torch.dtype:
        return PRECISIONS[self.precision]

    @property
    def layout(self) -> BlockLayout:
        return self.family.layout(self.sign)

    @property
    def training_family(self) -> PromptFamily:
        """The prompts to train on: with queries that span their distribution, where there are such."""
        return self.family.spanning() or self.family

    def errors(
        self, prediction: Float[Tensor, "batch query y"], target: Float[Tensor, "batch query y"]
    ) -> Float[Tensor, " batch"]:
        """e of each prompt of the training family."""
        squared = (prediction - target).square().sum((1, 2))
        if self.error == "relative":
            return squared / target.square().sum((1, 2))
        queries = 1 if self.family.spanning() is not None else self.family.queries
        return squared / (queries * target.shape[-1])

    def loss(
        self, prediction: Float[Tensor, "batch query y"], target: Float[Tensor, "batch query y"]
    ) -> Float[Tensor, ""]:
        return torch.log1p(self.sharpness * self.errors(prediction, target)).mean()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "family": self.family.to_dict(), "betas": list(self.betas), "prior": self.prior}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """The inverse of `to_dict`."""
        settings = {name: value for name, value in values.items() if name != "prior"}
        return cls(**{**settings, "family": family_from_dict(values["family"]), "betas": tuple(values["betas"])})


def recipe(name: str) -> Recipe:
    """A recipe by its name.

    Raises:
        ValueError: no recipe has that name; the message lists those that exist.
    """
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}")
    return RECIPES[name]


_D10 = LogUniformSpectrum(n=10, d=10, n_query=5, d_out=5, kappa=10)

RECIPES: dict[str, Recipe] = {
    entry.name: entry
    for entry in (
        Recipe(
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
        ),
        Recipe(
            name="eagle-d10",
            about="Block completion at d = 10, d' = 5 with singular values over [1/10, 1], four layers.",
            family=_D10,
            n_layers=4,
            steps=12000,
            rate=3e-2,
            weight_decay=0.03,
            sharpness=1e5,
        ),
        Recipe(
            name="eagle-deep",
            about="The prompts of eagle-d10 with five layers.",
            family=_D10,
            n_layers=5,
            steps=16000,
            rate=2e-2,
            weight_decay=0.03,
            sharpness=1e7,
        ),
        Recipe(
            name="eagle-scalar",
            about="Scalar prediction, the in-context regression of one number: d = 10, one query, one label.",
            family=LogUniformSpectrum(n=10, d=10, n_query=1, d_out=1, kappa=10),
            n_layers=4,
            steps=12000,
            rate=3e-2,
            weight_decay=0.03,
            sharpness=1e5,
        ),
        Recipe(
            name="eagle-nystrom",
            about="Nyström extrapolation of Haar-rotated positive semidefinite matrices, 10 + 5 rows and columns.",
            family=HaarNystrom(n=10, n_query=5, kappa=10),
            n_layers=4,
            steps=12000,
            rate=3e-2,
            weight_decay=0.03,
            sharpness=1e5,
        ),
    )
}
