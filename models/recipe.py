"""What a recipe of linear attention is: the complete settings of a training run, and its loss."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.layout import BlockLayout, Visibility
from models.gram import GramState, Routing, query_rows
from models.parametrisation import GramParameters, HeadSizes
from models.prompts import PromptFamily, Prompts, family_from_dict
from models.training_settings import Answers, TrainingSettings
from models.transformer import HookedTransformer

ERRORS = ("relative", "squared")
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Recipe(TrainingSettings):
    """Everything that decides a trained linear-attention model, except the seed.

    The loss of a batch is the mean over prompts of log(1 + sharpness · e). For small errors that is sharpness · e; a
    prompt that the model blows up on keeps a gradient without drowning the others. The larger the sharpness, the more
    the typical prompt counts against the worst, and the fewer seeds end in a poor optimum. e of a prompt is

        "relative": ‖prediction - D*‖² / ‖D*‖²         "squared": the mean of (prediction - D*)² over the entries of D

    in both cases in expectation over the queries where the family has spanning ones. A small sharpness makes the loss
    the mean of e itself. The weight decay empties the directions of the weights that nothing reads.

    Args:
        name, about, family, steps, batch, rate, warmup, final_rate, betas, eps, weight_decay, clip: see
            `TrainingSettings`.
        n_layers, n_heads: sizes; d_model is the x and y columns.
        qk_rank, value_rank: largest rank of a head's Q and V; None for d_model.
        machines, visibility: the machines that hold the context rows, and for each head the rules of context rows and
            of query rows (`interp.layout.Visibility`); with one machine all rows see the whole context.
        init_std: of the initial Q and V a layer.
        error, sharpness: of the loss.
        precision: "float32", or "float64" for prompts on which float32 overflows along the way.
        gain: a fixed scale gain^l for layer l, which is a prior informed by the solution; None for no such prior.
        sign: of the read-out.
    """

    n_layers: int
    n_heads: int = 1
    init_std: float = 0.1
    error: str = "relative"
    sharpness: float = 100.0
    precision: str = "float32"
    gain: float | None = None
    sign: float = -1.0
    qk_rank: int | None = None
    value_rank: int | None = None
    machines: int = 1
    visibility: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_numbers(sizes=("n_layers", "n_heads", "machines"), positive=("sharpness",))
        self._check_heads()
        for name, known in (("error", ERRORS), ("precision", PRECISIONS)):
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise ValueError(f"recipe {self.name!r}: unknown {name} {given!r}; known: {', '.join(known)}")

    def _check_heads(self) -> None:
        """Ranks within the columns; machines that the heads' rules name and that the context rows can be split over."""
        if (self.machines > 1) != bool(self.visibility) or len(self.visibility) not in (0, self.n_heads):
            raise ValueError(
                f"recipe {self.name!r}: {self.machines} machines and {self.n_heads} heads need a visibility for every "
                f"head, and one machine needs none; got {len(self.visibility)}"
            )
        for name in ("qk_rank", "value_rank"):
            rank = getattr(self, name)
            columns = sum(self.family.widths)
            if rank is not None and not (isinstance(rank, int) and 1 <= rank <= columns):
                raise ValueError(
                    f"recipe {self.name!r}: {name}={rank} must be a whole number between 1 and the {columns} columns"
                )
        rows = self.family.sample(1, seed=0).tokens.shape[1]
        self.layout.n_context(rows)

    @property
    def prior(self) -> str:
        """What the run was told about the solution."""
        return "none" if self.gain is None else f"layer l is scaled by {self.gain:g}^l"

    @property
    def dtype(self) -> torch.dtype:
        return PRECISIONS[self.precision]

    @property
    def layout(self) -> BlockLayout:
        layout = self.family.layout(self.sign)
        if not self.visibility:
            return layout
        rules = tuple(Visibility(context, query) for context, query in self.visibility)
        return replace(layout, machines=self.machines, visibility=rules)

    @property
    def sizes(self) -> HeadSizes:
        return HeadSizes(self.n_layers, self.n_heads, self.layout.d_model, self.qk_rank, self.value_rank)

    @property
    def training_family(self) -> PromptFamily:
        """The prompts to train on: with queries that span their distribution, where there are such."""
        return self.family.spanning() or self.family

    @cached_property
    def routing(self) -> Routing:
        """Who sees whose Gram matrix."""
        return Routing.of(self.layout, self.n_heads)

    def training_prompts(self, seed: int, device: torch.device) -> Prompts:
        return self.training_family.sample(self.batch, seed=seed, dtype=self.dtype, device=device)

    def parameters(self, seed: int) -> GramParameters:
        return GramParameters(self.sizes, self.init_std, seed, self.gain)

    def decayed(self, parameters: nn.Module) -> list[nn.Parameter]:
        return [p for name, p in parameters.named_parameters() if name != "log_gain"]

    def answers(self, parameters: nn.Module, prompts: Prompts) -> Answers:
        assert isinstance(parameters, GramParameters)
        state = GramState.of(prompts.tokens, prompts.n_query, self.machines)
        return self.sign * query_rows(state, parameters.layers(), self.routing)[..., -prompts.d_out :]

    def to_model(self, parameters: nn.Module) -> HookedTransformer:
        assert isinstance(parameters, GramParameters)
        return parameters.to_model(self.layout).float()

    def watched(self, parameters: nn.Module) -> list[Tensor]:
        """The matrices Q and V, which are products of the parameters."""
        assert isinstance(parameters, GramParameters)
        return [matrix for layer in parameters.layers() for matrix in (layer.Q, layer.V)]

    def merit(self, metrics: Mapping[str, Any]) -> float | None:
        """The pooled relative error; where single prompts blow up (unbounded inputs, machines with few rows) a median.

        Of the squared error for recipes that train on it, else of the relative error.
        """
        if self.error == "squared":
            return metrics["squared_error"]["median"]
        return metrics["relative_error"]["median"] if self.machines > 1 else super().merit(metrics)

    def errors(self, prediction: Answers, target: Answers) -> Float[Tensor, " batch"]:
        """e of each prompt of the training family."""
        squared = (prediction - target).square().sum((1, 2))
        if self.error == "relative":
            return squared / target.square().sum((1, 2))
        queries = 1 if self.family.spanning() is not None else self.family.queries
        return squared / (queries * target.shape[-1])

    def loss(self, prediction: Answers, target: Answers) -> Float[Tensor, ""]:
        return torch.log1p(self.sharpness * self.errors(prediction, target)).mean()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**super().to_dict(), "visibility": [list(rules) for rules in self.visibility]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """The inverse of `to_dict`."""
        settings = {name: value for name, value in values.items() if name != "prior"}
        visibility = tuple((context, query) for context, query in values.get("visibility", ()))
        tuples = {"betas": tuple(values["betas"]), "visibility": visibility}
        return cls(**{**settings, "family": family_from_dict(values["family"]), **tuples})
