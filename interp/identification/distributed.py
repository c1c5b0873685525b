"""The family of rules whose context rows lie on machines: EAGLE on every machine, and queries that see all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from interp.identification.evidence import Evidence, Key
from interp.identification.fit import Fit, fit_of_words
from interp.identification.steps import constant
from interp.unrolling import LayerRule, UpdateRule
from interp.unrolling.spectral import two_words
from interp.unrolling.words import Word
from interp.visibility import machine_of

Steps = list[dict[Key, float]]  # by layer


def distributed_eagle(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
    """EAGLE's two words for context rows, which see their own machine, and for queries, which see all; free steps.

    A role's rows may see their machines by one head ("machine", or "context" for queries), or by one head a machine.
    Heads of several machines that agree within the tolerance have one step; if they do not, each has its own, and the
    settings list them by machine. `spread` is (largest − smallest) / |mean| over machines, by layer.
    """
    if rule.depth == 1 or not all(_is_distributed(layer, rule.layout.machines) for layer in rule.layers):
        return None  # in one layer context rows do nothing, and it is gradient descent on all of them
    common = _fit(rule, evidence, together=True)
    if common.problem is None or max(len(groups) for layer in rule.layers for groups in _alike(layer).values()) == 1:
        return common
    return _fit(rule, evidence, together=False)


def _is_distributed(layer: LayerRule, machines: int) -> bool:
    """Do context rows see their own machine and queries all, by one head or by one head a machine."""
    one_by_one = {f"machine {machine}" for machine in range(machines)}
    seen = {
        role: {item.group.rule for item in layer.groups if role in item.group.roles} for role in ("context", "query")
    }
    return seen["context"] in ({"machine"}, one_by_one) and seen["query"] in ({"context"}, one_by_one)


def _alike(layer: LayerRule) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the groups that act on the same roles: one group, or one a machine, in their order."""
    found: dict[tuple[str, ...], list[int]] = {}
    for number in sorted(range(len(layer.groups)), key=lambda number: machine_of(layer.groups[number].group.rule) or 0):
        found.setdefault(layer.groups[number].group.roles, []).append(number)
    return found


def _fit(rule: UpdateRule, evidence: Sequence[Evidence], together: bool) -> Fit:
    """The nearest member with one step for all machines (`together`) or one a machine."""
    words, steps, free, spread = two_words(rule), Steps(), 0, []
    for layer, known in zip(rule.layers, evidence, strict=True):
        chosen: dict[Key, float] = {}
        apart = [0.0]
        for numbers in _alike(layer).values():
            for word in words:
                keys = [(number, word) for number in numbers if (number, word) in known.coefficients]
                values = [known.coefficients[key] for key in keys]
                apart.append(_spread(values))
                chosen |= zip(keys, [constant(values)] * len(keys) if together and keys else values, strict=True)
                free += min(1, len(keys)) if together else len(keys)
        steps.append(chosen)
        spread.append(max(apart))
    settings = {"machines": rule.layout.machines, **_settings(rule, words, steps)}
    if any(spread):
        settings["spread"] = spread
    return fit_of_words("distributed EAGLE", settings, free, rule, evidence, steps, _wrong_sign(rule, words, steps))


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / max(1, len(values))
    return (max(values) - min(values)) / abs(mean) if len(values) > 1 and mean else 0.0


def _settings(rule: UpdateRule, words: tuple[Word, Word], steps: Steps) -> dict[str, list[Any]]:
    """Steps by role and layer where they reach the output: numbers, or lists by machine where machines differ."""
    settings: dict[str, list[Any]] = {"eta": [], "gamma": [], "query_eta": [], "query_gamma": []}
    for layer, chosen in zip(rule.layers, steps, strict=True):
        for name, word, sign, role in _named(words):
            numbers = [number for roles, found in _alike(layer).items() if role in roles for number in found]
            values = [sign * chosen[number, word] for number in numbers if (number, word) in chosen]
            if word.into in layer.live[role] and values:
                settings[name].append(values[0] if len(set(values)) == 1 else values)
    return settings


def _named(words: tuple[Word, Word]) -> list[tuple[str, Word, float, str]]:
    """The name of each step, its word, the sign of the word's coefficient, and whose step it is."""
    xx, xy = words
    return [
        (prefix + name, word, sign, role)
        for prefix, role in (("", "context"), ("query_", "query"))
        for name, word, sign in (("eta", xx, 1.0), ("gamma", xy, -1.0))
    ]


def _wrong_sign(rule: UpdateRule, words: tuple[Word, Word], steps: Sequence[Mapping[Key, float]]) -> str | None:
    """The first step of the wrong sign, with its layer and, where they have heads of their own, its machine."""
    if rule.layout.sign > 0:
        return "the read-out does not negate, so these steps ascend"
    for index, (layer, chosen) in enumerate(zip(rule.layers, steps, strict=True)):
        for name, word, sign, role in _named(words):
            for number, item in enumerate(layer.groups):
                value = chosen.get((number, word), -1.0)
                if role in item.group.roles and word.into in layer.live[role] and value >= 0:
                    where = "" if machine_of(item.group.rule) is None else f"{item.group.rule}, "
                    return f"layer {index}: {where}{name} = {sign * value:.3g} has the wrong sign"
    return None
