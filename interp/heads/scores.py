"""What the scores of a head are functions of: squared distance, distance, product, terms of the key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.heads.points import Route
from interp.heads.ratios import held_out, r2, to_plain
from interp.hooks import capture, hook_name
from interp.kernels import LEARNED, AttentionKernel
from interp.layout import BlockLayout
from interp.probes.scores import Score

FORMS = ("gaussian", "laplace", "product")
MEANING = {"gaussian": "−‖Δx‖²/2", "laplace": "−‖Δx‖", "product": "xᵀx'"}
SINGULAR = 1e-12


@dataclass(frozen=True)
class Form:
    """Scores ≈ slope · form + a constant a row, held-out R², and the bandwidth that the slope means.

    gaussian: −‖Δx‖²/2h², h = slope^(−1/2). laplace: −‖Δx‖/ℓ, ℓ = 1/slope. None for product, and for slopes ≤ 0.
    """

    name: str
    slope: float
    score: Score

    @property
    def bandwidth(self) -> float | None:
        if self.slope <= 0 or self.name == "product":
            return None
        return self.slope**-0.5 if self.name == "gaussian" else 1 / self.slope

    def to_dict(self) -> dict[str, Any]:
        return {"form": self.name, "slope": self.slope, "bandwidth": self.bandwidth, "r2": to_plain(self.score)}


@dataclass(frozen=True)
class ScoreFit:
    """What the scores of one head on one route are functions of.

    Args:
        forms: one of x and x' each.         keys: R² of terms of the key alone (`Route.key_terms`).
        with_keys: R² of the best form and those terms. −‖Δx‖²/2 and xᵀx' differ by ‖x'‖²/2 and a constant of the row,
            so that beside key terms they are one form.
    """

    forms: tuple[Form, ...]
    keys: Score
    with_keys: Score

    @property
    def best(self) -> Form:
        return max(self.forms, key=lambda form: form.score.value)

    def to_dict(self) -> dict[str, Any]:
        return {
            "best": self.best.name,
            "forms": [form.to_dict() for form in self.forms],
            "key_terms_alone": to_plain(self.keys),
            "best_with_key_terms": to_plain(self.with_keys),
        }


def attention(
    model: Any, tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout
) -> list[tuple[Float[Tensor, "batch head token token"], Float[Tensor, "batch head token token"]]]:
    """Scores and pattern of every layer; scores are made of q and k with the model's own kernel and scale."""
    layers, kernel = range(model.cfg.n_layers), kernel_of(model)
    points = ("q", "k", "pattern")
    found = capture(model, tokens, [hook_name(point, layer) for layer in layers for point in points])
    result = []
    for layer in layers:
        q, k, pattern = (found[hook_name(point, layer)] for point in points)
        learned = model.blocks[layer].attn.learned_features if kernel.similarity == LEARNED else None
        scores = kernel.scores(q.transpose(1, 2), k.transpose(1, 2), layout.n_context(tokens.shape[1]), learned)
        result.append((scores.double(), pattern.double()))
    return result


def kernel_of(model: Any) -> AttentionKernel:
    """The model's attention kernel; TransformerLens's models have softmax of scores over √d_head unless told not to."""
    own = getattr(model.cfg, "kernel", None)
    if isinstance(own, AttentionKernel):
        return own
    return AttentionKernel("exp", "sum", "sqrt_d_head" if getattr(model.cfg, "use_attn_scale", True) else "none")


def fit_scores(route: Route, scores: Float[Tensor, "batch row key"], visible: Bool[Tensor, "row key"]) -> ScoreFit:
    """Least squares on three quarters of the prompts, R² on the others.

    Everything is centred within rows over the visible keys first: softmax sees no constant of a row.
    """
    gap = route.row_x[:, :, None] - route.key_x[:, None]
    squared = gap.square().sum(-1)
    product = route.row_x @ route.key_x.mT
    terms = route.key_terms[:, None].expand(-1, squared.shape[1], -1, -1)
    columns = [-squared / 2, -squared.sqrt(), product, *terms.unbind(-1), scores]
    grams = _grams([_centred(column, visible) for column in columns])
    target, keys = len(columns) - 1, list(range(len(FORMS), len(columns) - 1))
    forms = tuple(Form(name, *_fit_one(grams, i, target)) for i, name in enumerate(FORMS))
    best = max(range(len(FORMS)), key=lambda i: forms[i].score.value)
    return ScoreFit(forms, _fit(grams, keys, target)[1], _fit(grams, [best, *keys], target)[1])


def _centred(values: Float[Tensor, "batch row key"], visible: Bool[Tensor, "row key"]) -> Tensor:
    mean = torch.where(visible, values, 0).sum(-1, keepdim=True) / visible.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(visible, values - mean, 0)


def _grams(columns: Sequence[Float[Tensor, "batch row key"]]) -> Float[Tensor, "batch column column"]:
    """Inner products of the columns, prompt by prompt: all that fits and errors need."""
    stacked = torch.stack(list(columns)).flatten(2)
    return torch.einsum("csi,dsi->scd", stacked, stacked)


def _fit_one(grams: Tensor, column: int, target: int) -> tuple[float, Score]:
    coef, score = _fit(grams, [column], target)
    return coef[0].item(), score


def _fit(grams: Float[Tensor, "batch c c"], chosen: list[int], target: int) -> tuple[Tensor, Score]:
    """Coefficients and held-out R²."""
    test = held_out(len(grams))
    train = grams[: test.start].sum(0)
    size = train.diagonal()[chosen].sqrt().clamp(min=1e-300)
    gram = train[chosen][:, chosen] / size / size[:, None]
    coef = torch.linalg.pinv(gram, rtol=SINGULAR, hermitian=True) @ (train[chosen, target] / size) / size
    left = torch.zeros(len(train)).to(train)
    left[chosen], left[target] = -coef, 1.0
    errors = torch.einsum("c,scd,d->s", left, grams[test], left)
    return coef, r2(errors, grams[test][:, target, target])
