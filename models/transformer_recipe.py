"""Recipes of models that are trained through their token forward: softmax, MLPs, norms, a learned read-in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.prompts import GaussianProcess, LinearRegression, Prompts, family_from_dict
from models.prompts.gaussian_process import ALTERNATING
from models.seeds import derived_seed
from models.training_settings import Answers, TrainingSettings
from models.transformer import HookedTransformer

LENGTH = 1
"""What a step's seed is used for, apart from its prompts: the number of context rows."""


@dataclass(frozen=True)
class TransformerRecipe(TrainingSettings):
    """Everything that decides a trained transformer, except the seed.

    The loss is the mean squared error of the answers. The prompts of a step share one number of context rows, uniform
    between `shortest` and the family's n; of alternating prompts every input token is an answer, so that each holds
    all numbers of rows. Weight decay acts on matrices, not on biases and layer norms.

    Args:
        family: of regression prompts. The answers to train on are those without noise.
        architecture: the model; its own seed is not used.
        shortest: the fewest context rows in training; None for always n.
        queries: query rows of a training prompt. Queries do not see each other, so that more of them are as many
            prompts with one context.

    Raises:
        ValueError: a setting that is not positive, another kind of family, `shortest` above n, a model that has no
            read-in of the tokens or no read-out of its own.
    """

    architecture: TransformerConfig
    shortest: int | None = None
    queries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.family, LinearRegression | GaussianProcess):
            raise ValueError(
                f"recipe {self.name!r}: a transformer is trained on regression prompts (UniformRegression, "
                f"GaussianRegression, GaussianProcess), and these are {type(self.family).__name__}"
            )
        self.check_numbers(sizes=("queries",), positive=())
        if self.shortest is not None and not 1 <= self.shortest <= self.family.n:
            raise ValueError(
                f"recipe {self.name!r}: shortest={self.shortest} must lie between 1 and the family's n={self.family.n}"
            )
        expected, found = self.family.widths, (self.architecture.d_in, self.architecture.d_out)
        if found != (sum(expected), expected[1]):
            raise ValueError(
                f"recipe {self.name!r}: prompts of {sum(expected)} columns with {expected[1]} label need a model with "
                f"d_in={sum(expected)} and d_out={expected[1]}, and this one has {found[0]} and {found[1]}"
            )

    @property
    def prior(self) -> str:
        return "none"

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def layout(self) -> BlockLayout:
        return self.family.layout(sign=1.0)

    @property
    def alternates(self) -> bool:
        """Are the prompts alternating, so that every input token is trained on: a query of its own past."""
        return getattr(self.family, "token_format", None) == ALTERNATING

    def training_prompts(self, seed: int, device: torch.device) -> Prompts:
        assert isinstance(self.family, LinearRegression | GaussianProcess)  # checked on construction
        if isinstance(self.family, GaussianProcess) and self.alternates:
            return self.family.sequences(self.batch, seed=seed, dtype=self.dtype, device=device)
        rows = self.family.n
        if self.shortest is not None:
            generator = torch.Generator().manual_seed(derived_seed(seed, LENGTH))
            rows = int(torch.randint(self.shortest, rows + 1, (), generator=generator))
        family = replace(self.family, n=rows, n_query=self.queries)
        return family.sample(self.batch, seed=seed, dtype=self.dtype, device=device)

    def parameters(self, seed: int) -> HookedTransformer:
        return HookedTransformer(replace(self.architecture, seed=seed), replace(self.layout, n_query=self.queries))

    def decayed(self, parameters: nn.Module) -> list[nn.Parameter]:
        return [p for name, p in parameters.named_parameters() if name.rpartition(".")[2].startswith("W_")]

    def answers(self, parameters: nn.Module, prompts: Prompts) -> Answers:
        assert isinstance(parameters, HookedTransformer)
        return parameters(prompts.tokens)[:, ::2] if self.alternates else parameters.predict(prompts.tokens)

    def loss(self, prediction: Answers, target: Answers) -> Float[Tensor, ""]:
        return (prediction - target).square().mean()

    def to_model(self, parameters: nn.Module) -> HookedTransformer:
        weights = {name: tensor.detach().cpu().clone() for name, tensor in parameters.state_dict().items()}
        return HookedTransformer.from_weights(self.architecture, self.layout, weights)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TransformerRecipe":
        """The inverse of `to_dict`."""
        settings = {name: value for name, value in values.items() if name != "prior"}
        built = {
            "family": family_from_dict(values["family"]),
            "architecture": TransformerConfig.from_dict(values["architecture"]),
            "betas": tuple(values["betas"]),
        }
        return cls(**{**settings, **built})
