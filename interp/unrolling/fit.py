"""What the weights cannot say: how much of the function the words explain, and which few suffice, on given prompts.

Half of the prompts are for fitting, the other half is held out. Errors are of the rule against the exact level,
relative, rms over the central 99 % of the held-out prompts.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.stats import central_rms, pooled_errors
from interp.unrolling.moments import check_prompts, second_moments
from interp.unrolling.rule import GroupRule, Level, UpdateRule, WordFeatures, live_part
from interp.unrolling.words import Word, reproject

Coefficients = list[list[dict[Word, float]]]  # by layer, by group
EXHAUSTIVE = 8  # words of which every subset is tried


@dataclass(frozen=True)
class CoreRow:
    """A subset of the words and its error, coefficients by least squares on the weights."""

    words: tuple[str, ...]
    rms_relative_error: float


@dataclass(frozen=True)
class FunctionFit:
    """What fitting to prompts found.

    Args:
        table: subsets of the words, the smallest first: the best of their size where `exhaustive`.
        exhaustive: were all subsets tried, or words left out one after the other.
        core_error: the error the core was asked for, and whether it was `reached`.
        explained: by level, for each layer 1 − ‖ΔZ − Δ̂Z‖² / ‖ΔZ‖² on the model's own input (live rows and columns).
        context_norm: for each layer median and largest spectral norm of the context's x block, ‖A_l‖₂; where the rows
            are spread over machines, over prompts and machines, of the rows of one.
    """

    prompts: int
    table: tuple[CoreRow, ...]
    exhaustive: bool
    core_error: float
    reached: bool
    explained: Mapping[str, tuple[float, ...]]
    context_norm: tuple[tuple[float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def fit_to_prompts(rule: UpdateRule, prompts: Any, core_error: float) -> UpdateRule:
    """The rule with a core, coefficients refitted where that lowers the held-out error, and its `FunctionFit`."""
    tokens = check_prompts(prompts, rule.layout)
    if len(tokens) < 4:
        raise ValueError(f"unroll: {len(tokens)} prompts are too few to fit and hold out; give at least 4, better 256")
    fitting, held_out = tokens[::2], tokens[1::2]
    error = _error_on(rule, held_out)
    exact = [state for state in rule.states(fitting, "exact")]

    chosen: dict[Level, tuple[Coefficients, str]] = {"words": _better(rule, exact, _all(rule), error)}
    steps = _search(_all(rule), lambda words: error(_restricted(rule, words)), core_error)
    core = next((words for words, rms in steps if rms <= core_error), min(steps, key=lambda step: step[1])[0])
    chosen["core"] = _better(rule, exact, core, error)
    fitted = _with(_with(rule, chosen["core"][0], "core"), chosen["words"][0], "words")
    table = tuple(CoreRow(tuple(str(word) for word in sorted(words)), rms) for words, rms in steps)
    fitted = replace(fitted, source={level: source for level, (_, source) in chosen.items()})
    function = FunctionFit(
        prompts=len(tokens),
        table=table,
        exhaustive=len(_all(rule)) <= EXHAUSTIVE,
        core_error=core_error,
        reached=error(chosen["core"][0]) <= core_error,
        explained={},
        context_norm=_context_norms(rule, exact),
    )
    fitted = replace(fitted, function=function)
    return replace(fitted, function=replace(function, explained=_explained(fitted, held_out)))


def _all(rule: UpdateRule) -> set[Word]:
    return {word for layer in rule.layers for item in layer.groups for word in item.projected}


def _restricted(rule: UpdateRule, words: Collection[Word]) -> Coefficients:
    """Least squares in weight space on a subset of the words."""
    widths = rule.layout.widths
    return [[reproject(item.projected, words, widths) for item in layer.groups] for layer in rule.layers]


def _with(rule: UpdateRule, coefficients: Coefficients, level: Level) -> UpdateRule:
    """The rule with other coefficients at one level."""
    layers = tuple(
        replace(layer, groups=tuple(replace(item, **{level: c}) for item, c in zip(layer.groups, chosen, strict=True)))
        for layer, chosen in zip(rule.layers, coefficients, strict=True)
    )
    return replace(rule, layers=layers)


def _error_on(rule: UpdateRule, tokens: Tensor) -> Callable[[Coefficients], float]:
    reference = rule.predict(tokens, "exact")

    def error(coefficients: Coefficients) -> float:
        return central_rms(pooled_errors(_with(rule, coefficients, "words").predict(tokens, "words"), reference))

    return error


def _better(
    rule: UpdateRule, exact: list[Tensor], words: Collection[Word], error: Callable[[Coefficients], float]
) -> tuple[Coefficients, str]:
    """Coefficients from the weights, or refitted in function space if the held-out error falls."""
    weights, function = _restricted(rule, words), _refit(rule, exact, words)
    return (function, "function") if error(function) < error(weights) else (weights, "weights")


def _search(
    words: set[Word], error: Callable[[Collection[Word]], float], core_error: float
) -> list[tuple[frozenset[Word], float]]:
    """Subsets of rising size with their errors, up to the first that reaches `core_error`, and all words last.

    Up to `EXHAUSTIVE` words every subset of a size is tried. Of more, words are left out one after the other, each time
    the one least missed, so that a smaller subset may exist.
    """
    whole = (frozenset(words), error(words))
    if len(words) > EXHAUSTIVE:
        return _dropped(whole, error)
    found = []
    for size in range(1, len(words)):
        trials = [(frozenset(subset), error(subset)) for subset in combinations(sorted(words), size)]
        found.append(min(trials, key=lambda trial: trial[1]))
        if found[-1][1] <= core_error:
            break
    return [*found, whole]


def _dropped(
    whole: tuple[frozenset[Word], float], error: Callable[[Collection[Word]], float]
) -> list[tuple[frozenset[Word], float]]:
    steps = [whole]
    while len(steps[-1][0]) > 1:
        trials = [(steps[-1][0] - {word}, error(steps[-1][0] - {word})) for word in sorted(steps[-1][0])]
        steps.append(min(trials, key=lambda trial: trial[1]))
    return steps[::-1]


def _refit(rule: UpdateRule, exact: list[Tensor], words: Collection[Word]) -> Coefficients:
    """Least squares of each layer's exact update on the words' values, every prompt with the same weight."""
    result = []
    for index, layer in enumerate(rule.layers):
        z = exact[index]
        target = live_part(layer, rule.layout, exact[index + 1] - z).flatten(1)
        size = target.norm(dim=1, keepdim=True)
        usable = torch.isfinite(size[:, 0]) & (size[:, 0] > 0)
        names = [(g, word) for g, item in enumerate(layer.groups) for word in item.projected if word in words]
        features = [
            live_part(layer, rule.layout, word_update(rule, item, word, z)).flatten(1)
            for item in layer.groups
            for word in item.projected
            if word in words
        ]
        fitted = [dict[Word, float]() for _ in layer.groups]
        if features and usable.any():
            design = torch.stack([(feature / size)[usable].flatten() for feature in features], dim=1)
            # of least norm: a word may do nothing
            solution = torch.linalg.pinv(design) @ (target / size)[usable].flatten()
            for (g, word), value in zip(names, solution.tolist(), strict=True):
                fitted[g][word] = value
        result.append(fitted)
    return result


def word_update(rule: UpdateRule, item: GroupRule, word: Word, z: Tensor) -> Tensor:
    """The update [batch, token, D] that the word alone, with coefficient 1, would make."""
    layout, n, out = rule.layout, rule.layout.n_context(z.shape[1]), torch.zeros_like(z)
    for role in item.group.roles:
        rows = layout.rows(role, z.shape[1])
        S = second_moments(z, layout, item.group.rule, role)
        out[:, rows, layout.slices[word.into]] = WordFeatures(z[:, rows], S, layout)[word]
    return out / n if rule.per_n else out


def _explained(rule: UpdateRule, tokens: Tensor) -> dict[str, tuple[float, ...]]:
    """Function explained by level and layer."""
    shares: dict[str, list[float]] = {"words": [], "core": []}
    for index, z in enumerate(list(rule.states(tokens, "exact"))[:-1]):
        exact = live_part(rule.layers[index], rule.layout, rule.step(index, z, "exact"))
        for level in ("words", "core"):
            guess = live_part(rule.layers[index], rule.layout, rule.step(index, z, level))
            shares[level].append(explained(guess, exact))
    return {level: tuple(values) for level, values in shares.items()}


def explained(guess: Float[Tensor, "prompt *shape"], exact: Float[Tensor, "prompt *shape"]) -> float:
    """1 − ‖exact − guess‖² / ‖exact‖², over all prompts but the 1 % of largest update (prompts that blow up)."""
    size, gap = exact.flatten(1).square().sum(1), (exact - guess).flatten(1).square().sum(1)
    kept = torch.nan_to_num(size, nan=torch.inf).argsort()[: max(1, round(0.99 * len(size)))]
    return 1 - (gap[kept].sum() / size[kept].sum()).item() if size[kept].sum() else 1.0


def _context_norms(rule: UpdateRule, exact: list[Tensor]) -> tuple[tuple[float, float], ...]:
    """Median and maximum over prompts and machines of ‖A_l‖₂ (of A_l/√n where coefficients are per n).

    A_l: the columns that are not read out, of the context rows of one machine.
    """
    norms = []
    scale = exact[0].shape[1] - rule.layout.n_query if rule.per_n else 1
    columns = [
        i for name, at in rule.layout.slices.items() if name != rule.layout.readout for i in range(at.start, at.stop)
    ]
    for z in exact[:-1]:
        A = z[:, : -rule.layout.n_query, columns].nan_to_num(posinf=0, neginf=0)
        sigma = torch.linalg.matrix_norm(A.unflatten(1, (rule.layout.machines, -1)), ord=2)
        sigma = sigma / scale**0.5
        norms.append((sigma.median().item(), sigma.max().item()))
    return tuple(norms)
