"""read_heads: what the heads and MLPs of a model compute on prompts of a Gaussian process."""

from typing import Any

from torch import Tensor

from interp.covariance import Covariance
from interp.heads.decodable import decodable
from interp.heads.mlps import fit_mlps
from interp.heads.operator import NAMES, fit_operator
from interp.heads.points import Points
from interp.heads.report import HeadFit, HeadsReport
from interp.heads.scores import attention, fit_scores, kernel_of
from interp.hooks import in_float64
from interp.layout import BlockLayout
from interp.probes import randomised

LEAST = 16
SCORED = 96  # prompts that scores and operators are fitted and measured on


def read_heads(
    model: Any,
    prompts: Any,
    covariance: Covariance,
    lam: float,
    *,
    tokens: Tensor | None = None,
    layout: BlockLayout | None = None,
    untrained: Any = None,
    seed: int = 0,
) -> HeadsReport:
    """Scores and operators of every head, what the tokens hold by depth, what the MLPs write; in float64.

    Each with its controls: an untrained network throughout, equal weights for operators; for probes shuffled targets,
    the prompt alone and the token alone; for MLPs shuffled rows.

    Args:
        model: any hooked model (`interp.hooks.Hooked`) with a layout.
        prompts: with parts A, B, C and tokens, pair or alternating, as `models.prompts.GaussianProcess` samples them.
        covariance, lam: k and λ of the process that labels were drawn from.
        tokens: the prompts as the model takes them, where that is not `prompts.tokens` (constructions).
        layout: which columns and rows mean what; None for the model's own.
        untrained: a model of the same architecture with fresh weights; None draws one (`randomised`).

    Raises:
        ValueError: no layout, fewer than 16 prompts or than 2 points, λ ≤ 0, tokens that are not those of the prompts,
            a hook that does not exist or does not fire.
    """
    layout = layout or getattr(model, "layout", None)
    if layout is None:
        raise ValueError("read_heads: the model has no layout; give layout=BlockLayout.standard(x=…, y=…, n_query=…)")
    if not 0 < lam < float("inf"):
        raise ValueError(f"read_heads: lam={lam} is the variance of the noise and must be positive and finite")
    points = Points.of(prompts, layout, tokens)
    if points.count < LEAST or points.x.shape[1] < 2:
        raise ValueError(
            f"read_heads: {points.count} prompts of {points.x.shape[1]} points; give at least {LEAST} of 2 points each"
        )
    model = in_float64(model)
    fresh = randomised(model, points.tokens[:SCORED], seed) if untrained is None else in_float64(untrained)
    few = points.few(SCORED)
    return HeadsReport(
        covariance,
        lam,
        (few.count, points.count),
        _heads(model, fresh, few, covariance),
        decodable(model, fresh, points, covariance, lam, seed),
        fit_mlps(model, fresh, points, covariance, lam),
        _notes(model, points),
    )


def _heads(model: Any, fresh: Any, points: Points, covariance: Covariance) -> tuple[HeadFit, ...]:
    found, control = (attention(each, points.tokens, points.layout) for each in (model, fresh))
    stochastic, routes = kernel_of(model).normalisation == "sum", points.routes()
    fits = []
    for layer, (own, theirs) in enumerate(zip(found, control, strict=True)):
        for head in range(own[0].shape[1]):
            for route in routes:
                visible = route.visible(points.layout, points.tokens.shape[1], own[0].shape[1])[head]
                parts = []
                for (scores, pattern), kernels in ((own, NAMES), (theirs, ())):
                    s, S = (route.part(weights)[:, head] for weights in (scores, pattern))
                    operator = fit_operator(route, S, visible, covariance, stochastic, kernels)
                    parts += [fit_scores(route, s, visible), operator]
                fits.append(HeadFit(layer, head, route.name, *parts))
    return tuple(fits)


def _notes(model: Any, points: Points) -> tuple[str, ...]:
    kernel, notes = kernel_of(model), []
    if kernel.normalisation != "sum":
        notes.append(
            f"the attention is {kernel} and there is no softmax: scores are regressed all the same, and the operator "
            "is not row-stochastic, so it is compared after scaling by the best number"
        )
    if points.alternating:
        notes.append(
            "inputs and labels are tokens of their own and the mask is causal: D, α and the sums at a label are those "
            "of the points up to it"
        )
    if points.first:
        notes.append(f"{points.first} token in front holds no point: what is decodable is not measured")
    notes.append(
        "R² of scores weighs near and far keys alike; the distance of operators tells what differs after the softmax"
    )
    return tuple(notes)
