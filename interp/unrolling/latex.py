"""A rule in LaTeX (amsmath) and as sympy expressions."""

from collections.abc import Mapping
from typing import Any

import sympy

from interp.unrolling.rule import GroupRule, Level, UpdateRule
from interp.unrolling.spectral import closed_form
from interp.unrolling.words import Word

TERMS_A_LINE = 3
SUPERSCRIPTS = {"machine": "own", "context_and_self": "+self", "causal": r"\leq i", "all": "all"}


def to_latex(rule: UpdateRule, digits: int = 6) -> str:
    """Each layer's update as aligned equations (core if the rule has one, else all words), then the closed form."""
    level = rule.levels[-1] if rule.function else "words"
    lines = [line for index in range(rule.depth) for line in _layer_lines(rule, index, level, digits)]
    parts = [_align(lines)]
    form = closed_form(rule)
    if form:
        G = r"A^\top A / n" if form.per_n else r"A^\top A"
        steps = zip(form.eta, form.gamma, strict=True)
        parts.append(
            _align(
                [
                    rf"G &= {G},\quad p_0 = 1,\; r_0 = 1,\; s_0 = 0",
                    r"p_{l+1} &= p_l\,(1 + \eta_l\, g\, p_l^2)",
                    r"r_{l+1} &= r_l\,(1 - \gamma_l\, g\, p_l^2)",
                    r"s_{l+1} &= s_l + \gamma_l\, p_l^2\, r_l",
                    r"w_l &= s_l(G)\, A^\top C,\quad H_l^{-1} = \gamma_l\, p_l(G)^2",
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


def _layer_lines(rule: UpdateRule, index: int, level: Level, digits: int) -> list[str]:
    lines = []
    for item in rule.layers[index].groups:
        rows = "" if len(rule.layers[index].groups) == 1 else rf"\;\text{{({' and '.join(item.group.roles)} rows)}}"
        for block in rule.layout.columns:
            terms = [(c, w) for w, c in item.coefficients(level).items() if w.into == block]
            if terms:
                lines += _equation(block, index, terms, item, rows, rule.per_n, digits)
    return lines


def _equation(
    block: str, index: int, terms: list[tuple[float, Word]], item: GroupRule, rows: str, per_n: bool, digits: int
) -> list[str]:
    """z ← z + Σ coefficient · word, some terms a line."""
    symbol = _symbol("z", block)
    parts = [
        f"{'-' if c < 0 else '+'} {number(abs(c), digits)}{'/n' if per_n else ''}\\, {_word(word, item)}"
        for c, word in terms
    ]
    chunks = [" ".join(parts[i : i + TERMS_A_LINE]) for i in range(0, len(parts), TERMS_A_LINE)]
    lines = [
        rf"\text{{layer {index}:}}\quad {symbol} &\leftarrow {symbol} {chunks[0]}",
        *(rf"&\qquad {c}" for c in chunks[1:]),
    ]
    return [*lines[:-1], lines[-1] + rows]


def _word(word: Word, item: GroupRule) -> str:
    superscript = SUPERSCRIPTS.get(item.group.rule)
    moment = _symbol("S", f"{word.left}{word.right}") + (rf"^{{{superscript}}}" if superscript else "")
    row = _symbol("z", word.row)
    return rf"\operatorname{{tr}}({moment})\, {row}" if word.trace else rf"{row} {moment}"


def _symbol(letter: str, index: str) -> str:
    return rf"{letter}_{{{index}}}" if len(index) <= 2 else rf"{letter}_{{\mathrm{{{index}}}}}"


def number(value: float, digits: int) -> str:
    """A float in LaTeX, its exponent as a power of ten."""
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def to_sympy(rule: UpdateRule, level: Level) -> list[dict[str, Any]]:
    """By layer: column block → the row's next value, in MatrixSymbols z_x (1 × width), S_xy (width × width) and n.

    Rows of a layer that has several groups have one entry a block and role, as "query: y".
    """
    rule._check_level(level)
    if level == "exact":
        raise ValueError(
            "sympy: the exact level is matrices, not words; use level 'words' or 'core', or rule.python('exact')"
        )
    return [_sympy_layer(rule, index, level) for index in range(rule.depth)]


def _sympy_layer(rule: UpdateRule, index: int, level: Level) -> dict[str, Any]:
    layer, widths, entries = rule.layers[index], rule.layout.widths, {}
    for item in layer.groups:
        prefix = "" if len(layer.groups) == 1 else f"{'+'.join(item.group.roles)}: "
        for word, coefficient in item.coefficients(level).items():
            start = entries.setdefault(prefix + word.into, sympy.MatrixSymbol(f"z_{word.into}", 1, widths[word.into]))
            factor = sympy.Float(coefficient) / (sympy.Symbol("n", positive=True) if rule.per_n else 1)
            entries[prefix + word.into] = start + factor * _sympy_word(word, item, widths)
    return entries


def _sympy_word(word: Word, item: GroupRule, widths: Mapping[str, int]) -> Any:
    row = sympy.MatrixSymbol(f"z_{word.row}", 1, widths[word.row])
    moment = sympy.MatrixSymbol(f"S_{word.left}{word.right}", widths[word.left], widths[word.right])
    return sympy.Trace(moment) * row if word.trace else row * moment
