"""A rule in LaTeX (amsmath) and as sympy expressions."""

from collections.abc import Mapping
from typing import Any

import sympy

from interp.layout import ROLES
from interp.unrolling.rule import GroupRule, Level, UpdateRule, symbol_of
from interp.unrolling.spectral import closed_form
from interp.unrolling.words import Word
from interp.visibility import machine_of

Term = tuple[float, Word, GroupRule]
TERMS_A_LINE = 3
SUPERSCRIPTS = {"machine": "own", "context_and_self": "+self", "causal": r"\leq i", "all": "all"}


def to_latex(rule: UpdateRule, digits: int = 6) -> str:
    """Each layer's update as aligned equations (core if the rule has one, else all words), then the closed form."""
    level = rule.levels[-1]
    lines = [line for index in range(rule.depth) for line in _layer_lines(rule, index, level, digits)]
    parts = [_align(lines)] if lines else []
    form = closed_form(rule)
    if form:
        over, minus = " / n" if form.per_n else "", "" if form.sign < 0 else "-"
        G = rf"A^\top A{over}"
        steps = zip(form.eta, form.gamma, strict=True)
        parts.append(
            _align(
                [
                    rf"G &= {G},\quad p_0 = 1,\; r_0 = 1,\; s_0 = 0",
                    r"p_{l+1} &= p_l\,(1 + \eta_l\, g\, p_l^2)",
                    r"r_{l+1} &= r_l\,(1 - \gamma_l\, g\, p_l^2)",
                    r"s_{l+1} &= s_l + \gamma_l\, p_l^2\, r_l",
                    rf"w_l &= {minus}s_l(G)\, A^\top C{over},\quad H_l^{{-1}} = \gamma_l\, p_l(G)^2",
                    *(
                        rf"\eta_{{{layer}}} &= {number(eta, digits)},\quad \gamma_{{{layer}}} = {number(gamma, digits)}"
                        for layer, (eta, gamma) in enumerate(steps)
                    ),
                ]
            )
        )
    return "\n".join(parts)


def _align(lines: list[str]) -> str:
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}"


def _updates(rule: UpdateRule, index: int, level: Level) -> dict[str, list[Term]]:
    """The terms that are added to each block, by "block", or "role: block" where roles differ; all groups together."""
    layer = rule.layers[index]
    by_role: dict[str, dict[str, list[Term]]] = {}
    for role in ROLES:
        blocks = by_role.setdefault(role, {})
        for item in layer.groups:
            for word, coefficient in item.coefficients(level).items() if role in item.group.roles else ():
                blocks.setdefault(word.into, []).append((coefficient, word, item))
    if by_role["context"] == by_role["query"]:
        return by_role["query"]
    return {f"{role}: {block}": terms for role, blocks in by_role.items() for block, terms in blocks.items()}


def _layer_lines(rule: UpdateRule, index: int, level: Level, digits: int) -> list[str]:
    updates = _updates(rule, index, level)
    return [line for key, terms in updates.items() for line in _equation(key, index, terms, rule.per_n, digits)]


def _equation(key: str, index: int, terms: list[Term], per_n: bool, digits: int) -> list[str]:
    """z ← z + Σ coefficient · word, some terms a line."""
    role, _, block = key.rpartition(": ")
    symbol, of = _symbol("z", block), rf"\;\text{{({role} rows)}}" if role else ""
    parts = [
        f"{'-' if c < 0 else '+'} {number(abs(c), digits)}{'/n' if per_n else ''}\\, {_word(word, item)}"
        for c, word, item in terms
    ]
    chunks = [" ".join(parts[i : i + TERMS_A_LINE]) for i in range(0, len(parts), TERMS_A_LINE)]
    lines = [
        rf"\text{{layer {index}:}}\quad {symbol} &\leftarrow {symbol} {chunks[0]}",
        *(rf"&\qquad {c}" for c in chunks[1:]),
    ]
    return [*lines[:-1], lines[-1] + of]


def _word(word: Word, item: GroupRule) -> str:
    machine = machine_of(item.group.rule)
    superscript = SUPERSCRIPTS.get(item.group.rule) if machine is None else f"({machine})"
    moment = _symbol("S", word.left, word.right) + (rf"^{{{superscript}}}" if superscript else "")
    row = _symbol("z", word.row)
    return rf"\operatorname{{tr}}({moment})\, {row}" if word.trace else rf"{row} {moment}"


def _symbol(letter: str, *blocks: str) -> str:
    """A letter with block names as index; names of several letters upright."""
    names = [name if len(name) == 1 else rf"\mathrm{{{name.replace('_', ' ')}}}" for name in blocks]
    comma = "" if all(len(name) == 1 for name in blocks) else ","
    return rf"{letter}_{{{comma.join(names)}}}"


def number(value: float, digits: int) -> str:
    """A float in LaTeX, its exponent as a power of ten."""
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def to_sympy(rule: UpdateRule, level: Level) -> list[dict[str, Any]]:
    """By layer: column block → the row's next value, in MatrixSymbols z_x (1 × width), S_xy (width × width) and n.

    Where context and query rows move differently there is one entry a role, as "query: y". The moments of rows that see
    other rows have symbols of their own (S_own_xy, …; S_1_xy for a head that serves machine 1, 0 in context rows of
    other machines).
    """
    rule._check_level(level)
    if level == "exact":
        raise ValueError(
            "sympy: the exact level is matrices, not words; use level 'words' or 'core', or rule.python('exact')"
        )
    return [_sympy_layer(rule, index, level) for index in range(rule.depth)]


def _sympy_layer(rule: UpdateRule, index: int, level: Level) -> dict[str, Any]:
    widths, entries = rule.layout.widths, {}
    n = sympy.Symbol("n", positive=True) if rule.per_n else sympy.Integer(1)
    for key, terms in _updates(rule, index, level).items():
        block = key.rpartition(": ")[2]
        value = sympy.MatrixSymbol(f"z_{block}", 1, widths[block])
        for coefficient, word, item in terms:
            value = value + sympy.Float(coefficient) / n * _sympy_word(word, item, widths)
        entries[key] = value
    return entries


def _sympy_word(word: Word, item: GroupRule, widths: Mapping[str, int]) -> Any:
    row = sympy.MatrixSymbol(f"z_{word.row}", 1, widths[word.row])
    comma = "" if len(word.left) == len(word.right) == 1 else ","
    name = f"{symbol_of(item.group.rule)}_{word.left}{comma}{word.right}"
    moment = sympy.MatrixSymbol(name, widths[word.left], widths[word.right])
    return sympy.Trace(moment) * row if word.trace else row * moment
