"""A model trained with eight heads needs one: the others can be pruned."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from interp import unroll
from interp.unrolling import UpdateRule
from interp.unrolling.rule import GroupRule
from models import zoo
from models.prompts import Prompts
from models.transformer import HookedTransformer

MODEL, PROMPTS = "eagle-8head", 1024


def measure(settings: Settings, prompts: int = PROMPTS) -> Findings:
    model, sample = zoo.load(MODEL).double(), zoo.prompts(MODEL, prompts, seed=settings.seed)
    rule, heads = unroll(model), model.cfg.n_heads
    kept = list(range(1, heads + 1))
    canonical = [_squared(merged(rule, k).predict(sample.tokens, "exact"), sample) for k in kept]
    trained = [_squared(pruned(model, k).predict(sample.tokens), sample) for k in kept]
    rescaled = [_squared(pruned(model, k, rescale=True).predict(sample.tokens), sample) for k in kept]
    whole = _squared(model.predict(sample.tokens), sample)
    measurements = {
        "one-head": _ratio(canonical[0], whole, f"{MODEL}: {_shares(rule)}"),
        "as-trained": _ratio(trained[0], whole, _why(rescaled[0], whole)),
    }
    errors = {"canonical heads": canonical, "heads as trained": trained, "as trained, rescaled": rescaled}
    rms = {name: [values.mean().sqrt().item() for values in column] for name, column in errors.items()}
    return Findings(measurements, _table(kept, rms), {"heads": kept, **rms}, partial(_draw, kept, rms))


def merged(rule: UpdateRule, heads: int) -> UpdateRule:
    """The rule with the `heads` largest canonical heads of every group of heads."""

    def cut(item: GroupRule) -> GroupRule:
        return replace(item, group=replace(item.group, Q=item.group.Q[:heads], V=item.group.V[:heads]))

    layers = (replace(layer, groups=tuple(map(cut, layer.groups))) for layer in rule.layers)
    return replace(rule, layers=tuple(layers))


@torch.no_grad()
def pruned(model: HookedTransformer, heads: int, rescale: bool = False) -> HookedTransformer:
    """The model with all but the `heads` largest heads of a layer, by ‖Q_h‖‖V_h‖, zeroed.

    With `rescale`, those left are multiplied by the number a layer that brings Σ_h Q_h ⊗ V_h closest to what it was.
    """
    smaller = copy.deepcopy(model)
    for block in smaller.blocks:
        attn = block.attn
        Q, V = (attn.W_Q @ attn.W_K.mT).flatten(1), (attn.W_V @ attn.W_O).flatten(1)
        products = (Q @ Q.T) * (V @ V.T)
        order = products.diagonal().argsort(descending=True)
        kept, lost = order[:heads], order[heads:]
        attn.W_O[lost] = 0
        if rescale:
            attn.W_O[kept] *= products[kept].sum() / products[kept][:, kept].sum()
    return smaller


def _why(rescaled: Float[Tensor, " prompt"], whole: Float[Tensor, " prompt"]) -> str:
    """What keeps a head as it was trained from standing for all."""
    ratio = (rescaled.mean() / whole.mean()).sqrt().item()
    return (
        f"{MODEL}: the head of largest ‖Q_h‖‖V_h‖ in each layer, others zeroed. Training splits one EAGLE head over "
        f"several, each with a part of the step; scaled by one number a layer, the head that is left has {ratio:.3g} "
        "times the error"
    )


def _squared(prediction: Float[Tensor, "prompt query y"], prompts: Prompts) -> Float[Tensor, " prompt"]:
    """Squared error of each prompt over the mean squared answer."""
    gap = (prediction - prompts.target).square().sum((1, 2))
    return gap.detach() / prompts.target.square().sum((1, 2)).mean()


def _ratio(few: Float[Tensor, " prompt"], whole: Float[Tensor, " prompt"], note: str) -> Measurement:
    """Pooled relative error with fewer heads over that of the whole model, prompts resampled together."""

    def ratio(prompts: Tensor) -> Tensor:
        return (few[prompts].mean(-1) / whole[prompts].mean(-1)).sqrt()

    return bootstrap(ratio, torch.arange(len(few)), note)


def _shares(rule: UpdateRule) -> str:
    """What the largest canonical head holds of each layer's squared weight."""
    shares = []
    for layer in rule.layers:
        heads = layer.groups[0].group
        sizes = [(q.norm() * v.norm()).item() ** 2 for q, v in zip(heads.Q, heads.V, strict=True)]
        shares.append(sizes[0] / sum(sizes))
    return (
        "the largest canonical head holds " + ", ".join(f"{share:.4f}" for share in shares) + " of the layers' weight"
    )


def _table(kept: Sequence[int], rms: dict[str, list[float]]) -> str:
    lines = [f"{'heads kept':>10}  " + "  ".join(rms)]
    for index, heads in enumerate(kept):
        cells = "  ".join(f"{values[index]:>{len(name)}.3g}" for name, values in rms.items())
        lines.append(f"{heads:>10}  {cells}")
    return "relative error of the prediction by heads kept in each layer\n" + "\n".join(lines)


def _draw(kept: Sequence[int], rms: dict[str, list[float]], path: Path) -> None:
    draw_curves(
        {name: (kept, values) for name, values in rms.items()},
        path,
        title=f"{MODEL}: error by heads kept",
        x="heads kept in each layer",
        y="relative error of the prediction",
    )
