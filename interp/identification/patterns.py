"""The families that need more columns than x and y: constant, velocity and label."""

from collections.abc import Sequence
from dataclasses import replace

from interp.identification.evidence import Evidence, Key, shared
from interp.identification.fit import STRUCTURE, Fit, fit_of_words
from interp.identification.steps import constant
from interp.unrolling import UpdateRule
from interp.unrolling.spectral import see_one_context, two_words
from interp.unrolling.words import Word


def heavy_ball(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
    """v ← β v − γ z_x S_xy and y ← y + β v − γ z_x S_xy, one (γ, β) in all layers (Polyak 1964).

    The linear terms are words of the constant column: tr(S_11) z_v with β/n and (β − 1)/n, whose difference is 1/n.
    """
    blocks = _blocks(rule)
    if blocks is None:
        return None
    y, one, v = blocks
    x = two_words(rule)[0].row
    to_y, to_v = (0, Word(x, x, y, y)), (0, Word(x, x, y, v))
    keep_y, keep_v = (0, Word(v, one, one, y, trace=True)), (0, Word(v, one, one, v, trace=True))
    present = [shared(evidence, key) for key in (to_y, to_v, keep_y, keep_v)]
    if not all(present):
        return None
    gamma, kept, lost = -constant(present[0] + present[1]), constant(present[2]), constant(present[3])
    rows = 1 if rule.per_n else n
    inverse_n = kept - lost if rows is None else 1 / rows
    beta = kept / inverse_n if inverse_n else float("nan")
    lost = kept - inverse_n
    fitted = {to_y: -gamma, to_v: -gamma, keep_y: kept, keep_v: lost}
    problem = None if gamma > 0 and 0 < beta < 1 else f"γ = {gamma:.3g} and β = {beta:.3g} are no step and momentum"
    settings = {"gamma": gamma, "beta": beta, **_size(rule, 1 / inverse_n if inverse_n else float("nan"))}
    fit = fit_of_words(
        "heavy ball", settings, 2 if rows else 3, rule, evidence, _in_every_layer(evidence, fitted), problem
    )
    return replace(fit, columns={one: "one", v: "zero"})


def ridge_descent(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
    """y ← y − γ z_x S_xy − γλ (y − label), one (γ, λ) in all layers; label is a copy of the first y.

    The weights hold γλ/n, so λ needs the number of context rows unless the kernel divides by n.
    """
    blocks = _blocks(rule)
    if blocks is None:
        return None
    y, one, label = blocks
    x = two_words(rule)[0].row
    step, shrink, restore = (
        (0, Word(x, x, y, y)),
        (0, Word(y, one, one, y, trace=True)),
        (0, Word(label, one, one, y, trace=True)),
    )
    present = [shared(evidence, key) for key in (step, shrink, restore)]
    if not all(present):
        return None
    gamma = -constant(present[0])
    pull = constant([-value for value in present[1]] + present[2])
    fitted = {step: -gamma, shrink: -pull, restore: pull}
    problem = None if gamma > 0 and pull > 0 else f"γ = {gamma:.3g} and γλ = {pull:.3g} are not both positive"
    rows = 1 if rule.per_n else n
    name, penalty = ("penalty over n", pull / gamma) if rows is None else ("penalty", pull / gamma * rows)
    settings = {"gamma": gamma, name: penalty}
    fit = fit_of_words("ridge GD", settings, 2, rule, evidence, _in_every_layer(evidence, fitted), problem)
    return replace(fit, columns={one: "one", label: "copy of y"})


def averaging(rule: UpdateRule, evidence: Sequence[Evidence], n: int | None) -> Fit | None:
    """y ← y − γ_l z_1 S_1y / n: layer l takes the share γ_l of the mean that is left off all rows."""
    y = rule.layout.readout
    x = two_words(rule)[0].row
    one = next((name for name, width in rule.layout.widths.items() if width == 1 and name not in (x, y)), None)
    if one is None or not see_one_context(rule):
        return None
    key: Key = (0, Word(one, one, y, y))
    steps = [-layer.coefficients.get(key, 0.0) for layer in evidence]
    rows = 1 if rule.per_n else n
    settings = {"gamma over n" if rows is None else "gamma": [step * (rows or 1) for step in steps]}
    shares = [step * (rows or 1) for step in steps]
    wrong = [layer for layer, share in enumerate(shares) if not 0 < share <= (1 + STRUCTURE if rows else float("inf"))]
    problem = f"layer {wrong[0]}: it takes {shares[wrong[0]]:.3g} of the mean" if wrong else None
    fit = fit_of_words("averaging", settings, len(steps), rule, evidence, [{key: -step} for step in steps], problem)
    return replace(fit, columns={one: "one"})


def _blocks(rule: UpdateRule) -> tuple[str, str, str] | None:
    """y, a constant column, and a block that rotates with y; None if the layout lacks one."""
    layout, y = rule.layout, rule.layout.readout
    companions = [name for name in layout.columns if name != y and layout.rotates_with(name) == layout.rotates_with(y)]
    x = two_words(rule)[0].row
    ones = [name for name, width in layout.widths.items() if width == 1 and name not in (x, y, *companions)]
    return (y, ones[0], companions[0]) if see_one_context(rule) and ones and companions else None


def _in_every_layer(evidence: Sequence[Evidence], fitted: dict[Key, float]) -> list[dict[Key, float]]:
    """The same coefficients in every layer, words that a layer does not have left out."""
    return [{key: value for key, value in fitted.items() if key in layer.coefficients} for layer in evidence]


def _size(rule: UpdateRule, n: float) -> dict[str, float]:
    return {} if rule.per_n else {"n": n}
