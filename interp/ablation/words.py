"""A word of a linear rule removed: from the rule's coefficients, or from the model through hooks."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.ablation.intervention import Hooks, Intervention, chosen
from interp.hooks import HookFunction, hook_name
from interp.unrolling import closed_form
from interp.unrolling.fit import word_update
from interp.unrolling.rule import GroupRule, LayerRule, UpdateRule
from interp.unrolling.spectral import two_words
from interp.unrolling.words import Word

CONDITIONING, STEP = "conditioning", "step"


def word_named(rule: UpdateRule, name: str) -> Word:
    """A word by its text ("z_x S_xx → x", arrows may be written ->), or "conditioning" or "step" of EAGLE.

    Raises:
        ValueError: the rule has no such word; the message lists those it has.
    """
    named: dict[str, Word] = dict(zip((CONDITIONING, STEP), two_words(rule), strict=True))
    present = sorted({word for layer in rule.layers for item in layer.groups for word in item.projected})
    found = named.get(name) or next((word for word in present if str(word) == name.replace("->", "→").strip()), None)
    if found not in present:
        known = ", ".join([*(key for key, word in named.items() if word in present), *map(str, present)])
        raise ValueError(f"the rule has no word {name!r}; it has: {known}")
    return found


def without_word(rule: UpdateRule, word: Word, layers: Iterable[int] | None = None) -> UpdateRule:
    """The rule at levels words and core with a word left out of some layers; the other coefficients stay."""
    where = chosen("layer", layers, rule.depth)

    def dropped(item: GroupRule) -> GroupRule:
        words, core = ({w: c for w, c in level.items() if w != word} for level in (item.words, item.core))
        return replace(item, words=words, core=core)

    return replace(
        rule,
        layers=tuple(
            LayerRule(tuple(map(dropped, layer.groups)), layer.live) if index in where else layer
            for index, layer in enumerate(rule.layers)
        ),
    )


def remove_word(model: Any, rule: UpdateRule, word: Word, layers: Iterable[int] | None = None) -> Intervention:
    """The model without the word: what its weights' projection on the word writes is taken off `attn_out`."""
    where = chosen("layer", layers, rule.depth)

    def hooks() -> Hooks:
        return [hook for layer in where for hook in _subtract(rule, layer, word)]

    return Intervention("word", f"without {word}", where, None, hooks)


def _subtract(rule: UpdateRule, layer: int, word: Word) -> Hooks:
    kept: list[Tensor] = []
    layout = rule.layout

    def keep(z: Tensor, hook: Any = None) -> None:
        kept[:] = [layout.coordinates(z)]

    def take_off(out: Tensor, hook: Any = None) -> Tensor:
        update = torch.zeros_like(kept[0])
        for item in rule.layers[layer].groups:
            if word in item.projected:
                update = update + item.projected[word] * word_update(rule, item, word, kept[0])
        return out - update @ layout.basis.T.to(out)

    first: HookFunction = keep
    return [(hook_name("resid_pre", layer), first), (hook_name("attn_out", layer), take_off)]


def two_word_core(rule: UpdateRule) -> UpdateRule:
    """The rule of its two words alone, with the closed form's coefficients.

    Raises:
        ValueError: the rule has no closed form.
    """
    form = closed_form(rule)
    if form is None:
        raise ValueError("two_word_core: the rule has no closed form of two words")
    xx, xy = two_words(rule)
    layers = []
    for index, layer in enumerate(rule.layers):
        words = {xx: form.eta[index], xy: -form.gamma[index]}
        layers.append(LayerRule(tuple(replace(item, words=words, core={}) for item in layer.groups), layer.live))
    return replace(rule, layers=tuple(layers), function=None)
