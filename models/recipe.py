"""What a recipe is: the complete settings of a training run, and its loss."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout, Visibility
from models.parametrisation import HeadSizes
from models.prompts import PromptFamily, family_from_dict

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
        n_layers, n_heads: sizes; d_model is the x and y columns.
        qk_rank, value_rank: largest rank of a head's Q and V; None for d_model.
        machines, visibility: the machines that hold the context rows, and for each head the rules of context rows and
            of query rows (`interp.layout.Visibility`); with one machine all rows see the whole context.
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
    qk_rank: int | None = None
    value_rank: int | None = None
    machines: int = 1
    visibility: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("n_layers", "n_heads", "steps", "batch", "machines")}
        for name, value in {**sizes, "rate": self.rate, "sharpness": self.sharpness}.items():
            if not value > 0 or (name in sizes and not isinstance(value, int)):
                kind = "a positive whole number" if name in sizes else "positive"
                raise ValueError(f"recipe {self.name!r}: {name}={value} must be {kind}")
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
        lists = {"betas": list(self.betas), "visibility": [list(rules) for rules in self.visibility]}
        return {**asdict(self), "family": self.family.to_dict(), **lists, "prior": self.prior}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """The inverse of `to_dict`."""
        settings = {name: value for name, value in values.items() if name != "prior"}
        visibility = tuple((context, query) for context, query in values.get("visibility", ()))
        tuples = {"betas": tuple(values["betas"]), "visibility": visibility}
        return cls(**{**settings, "family": family_from_dict(values["family"]), **tuples})
