"""A rule as text, and the text's tables back as numbers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from interp.unrolling.blocks import describe_block
from interp.unrolling.fit import FunctionFit
from interp.unrolling.message_text import to_lines as messages_to_lines
from interp.unrolling.messages import messages
from interp.unrolling.pictures import to_lines as projections_to_lines
from interp.unrolling.projections import is_rank_limited, projections
from interp.unrolling.rule import GroupRule, Level, UpdateRule, symbol_of
from interp.unrolling.spectral import ClosedForm, closed_form, obstacle, two_words
from interp.unrolling.tables import ABSENT, by_layer, coefficient_table, wrapped
from interp.visibility import describe_rule, machine_of

DIGITS = 6
SMALL_PART = 1e-3  # of a group's largest part, in norm: smaller ones are counted and not described
FORMS = {
    "gradient descent": "  gradient descent on ½‖Aw − C‖²:  C ← C − γ A AᵀC,  D ← D − γ B AᵀC",
    "EAGLE": "  the EAGLE update (arXiv 2509.19702), η < 0 < γ:\n"
    "  A ← A + η A AᵀA,  B ← B + η B AᵀA,  C ← C − γ A AᵀC,  D ← D − γ B AᵀC",
    None: "  the two words of EAGLE, but not with its signs: a read-out that negates and η < 0 < γ in every layer",
}
TITLES: dict[Level, str] = {"core": "core, ", "words": "all words, "}


def to_text(rule: UpdateRule, digits: int = DIGITS) -> str:
    """The rule, section by section: what it is, core, all words, words against error, closed form, blocks, left out.

    Where rows lie on several machines, also what these send; where heads are of rank below d, their projections.
    """
    sections = [
        _header(rule),
        *([_core(rule, rule.function, digits)] if rule.function else []),
        _words(rule, digits),
        *([_error_table(rule.function)] if rule.function else []),
        _closed(rule, digits),
        *([messages_to_lines(messages(rule))] if rule.layout.machines > 1 else []),
        *([projections_to_lines(projections(rule))] if is_rank_limited(rule) else []),
        _blocks(rule),
        _left_out(rule),
    ]
    return "\n\n".join("\n".join(section) for section in sections)


def to_summary(rule: UpdateRule, digits: int = DIGITS) -> str:
    """What the rule is, and its core, or all words where it was not fitted to prompts."""
    body = _core(rule, rule.function, digits) if rule.function else _words(rule, digits)
    return "\n".join([*_header(rule), *body])


def parse_text(text: str) -> dict[str, list[dict[str, float]]]:
    """The coefficient tables of a printed rule: level → layer → word → coefficient, to the digits printed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    level, layers = None, []
    for line in text.splitlines():
        title = next((name for name, start in TITLES.items() if line.startswith(start)), None)
        if title or not line.startswith(" "):
            level, layers = title, []
        elif level and re.fullmatch(r" +(word)?( +layer \d+)+", line):
            is_words = line.strip().startswith("word")
            layers = [int(number) for number in re.findall(r"layer (\d+)", line)] if is_words else []
            for layer in layers:
                found.setdefault(level, {}).setdefault(layer, {})
        elif level and layers:
            label, *cells = re.split(r" {2,}", line.strip())
            if len(cells) == len(layers) and all(map(_is_cell, cells)):
                for layer, cell in zip(layers, cells, strict=True):
                    if cell != ABSENT:
                        found[level][layer][label] = float(cell)
    return {level: [words[i] for i in sorted(words)] for level, words in found.items()}


def _is_cell(text: str) -> bool:
    """A number or a dot; the words of a formula are neither."""
    return text == ABSENT or re.fullmatch(r"-?(\d.*|inf|nan)", text) is not None


def _header(rule: UpdateRule) -> list[str]:
    layout = rule.layout
    blocks = [f"{name} ({width})" for name, width in layout.widths.items()]
    sums = dict.fromkeys(item.group.rule for layer in rule.layers for item in layer.groups)
    sign = "−" if layout.sign < 0 else ""
    scale = "" if abs(layout.sign) == 1 else f"{abs(layout.sign):g}·"
    return [
        f"update rule of {_count(rule.depth, 'layer')}, attention kernel {rule.kernel}",
        *wrapped("column blocks ", blocks),
        f"prediction = {sign}{scale}{layout.readout} of the last {_count(layout.n_query, 'row')}, the queries",
        *(f"{symbol_of(name)} = Σ zᵀz over {describe_rule(name)}{_blind(name)}" for name in sums),
        *(["every coefficient is divided by n, the number of context rows"] if rule.per_n else []),
    ]


def _blind(rule: str) -> str:
    """What a rule leaves without a sum."""
    return "" if machine_of(rule) is None else "; 0 for the context rows of other machines"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _core(rule: UpdateRule, function: FunctionFit, digits: int) -> list[str]:
    few = "the fewest words" if function.exhaustive else "words left, dropping one after the other,"
    reached = "reached" if function.reached else "NOT REACHED"
    lines = [
        f"core, {few} for relative error {function.core_error:g}, {reached}; coefficients from {rule.source['core']}",
        *coefficient_table([layer.labelled("core") for layer in rule.layers], digits),
    ]
    form = _form(rule)
    return lines + ([form] if form else [])


def _form(rule: UpdateRule) -> str | None:
    """The core in the literature's letters, if it has no other words than the two."""
    form, (xx, _) = closed_form(rule), two_words(rule)
    words = {word for layer in rule.layers for item in layer.groups for word in item.core}
    if form is None or not words <= set(two_words(rule)):
        return None
    named = form if xx in words else replace(form, eta=(0.0,) * form.depth)
    return FORMS[named.form]


def _words(rule: UpdateRule, digits: int) -> list[str]:
    rows = {"explained, weights": [layer.weights_explained for layer in rule.layers]}
    if rule.function:
        rows["explained, function"] = list(rule.function.explained["words"])
        rows["explained by core, function"] = list(rule.function.explained["core"])
    lines = [
        f"all words, coefficients from {rule.source['words']}",
        *coefficient_table([layer.labelled("words") for layer in rule.layers], digits),
    ]
    return [*lines, *by_layer(rows, lambda value: f"{value:.6f}")]


def _error_table(function: FunctionFit) -> list[str]:
    lines = ["words against error (rms, relative, central 99 % of held-out prompts)"]
    for row in function.table:
        whole = len(row.words) == len(function.table[-1].words)
        lines += wrapped(f"  {len(row.words):>2}  {row.rms_relative_error:<10.3g} ", ["all"] if whole else row.words)
    return lines


def _closed(rule: UpdateRule, digits: int) -> list[str]:
    form = closed_form(rule)
    if form is None:
        return [f"closed form: none, since {obstacle(rule)}"]
    G, over = ("AᵀA/n", "/n") if form.per_n else ("AᵀA", "")
    sign = "" if form.sign < 0 else "−"
    rows: dict[str, Sequence[float]] = {"η": form.eta, "γ": form.gamma}
    if rule.function:
        for name, pick in (("median", 0), ("largest", 1)):
            norms = [norm[pick] * norm[pick] for norm in rule.function.context_norm]
            rows[f"η·‖A_l‖²{over}, {name} ‖A_l‖"] = [eta * norm for eta, norm in zip(form.eta, norms, strict=True)]
            rows[f"γ·‖A_l‖²{over}, {name} ‖A_l‖"] = [
                gamma * norm for gamma, norm in zip(form.gamma, norms, strict=True)
            ]
    return [
        f"closed form of z_x S_xx → x, z_x S_xy → y (≥ {form.share:.6f} of each layer's weights), G = {G} of the input",
        "  A_l = A p_l(G)   B_l = B p_l(G)   C_l = r_l(AAᵀ) C   D_l = −B s_l(G) AᵀC",
        "  p₀ = 1, r₀ = 1, s₀ = 0;   p ← p (1 + η g p²)   r ← r (1 − γ g p²)   s ← s + γ p² r",
        f"  implicit weights w_l = {sign}s_l(G) AᵀC{over};  layer l: w ← w − H⁻¹(G w − AᵀC),  H⁻¹ = γ_l p_l(G)²",
        *by_layer(rows, lambda value: f"{value:.{digits}g}"),
        *_polynomials(form, digits),
    ]


def _polynomials(form: ClosedForm, digits: int) -> list[str]:
    """p, r, s of the first two layers; later ones have degree (3^l − 1)/2 and go to JSON."""
    listed = form.coefficients()
    return [
        f"  {name}_{depth}(g) = {polynomial(listed[name][depth], digits)}"
        for depth in range(1, min(2, form.depth) + 1)
        for name in "prs"
        if name != "p" or depth < form.depth
    ]


def polynomial(coefficients: Iterable[float], digits: int = DIGITS) -> str:
    """Coefficients of 1, g, g², … as text."""
    text = ""
    for power, value in enumerate(coefficients):
        unit = "" if power == 0 else " g" if power == 1 else f" g^{power}"
        sign = "−" if value < 0 else "+" if text else ""
        text += f"{' ' if text else ''}{sign}{' ' if text else ''}{abs(value):.{digits}g}{unit}"
    return text or "0"


def _blocks(rule: UpdateRule) -> list[str]:
    """The exact level's matrices, each block by its simplest class."""
    lines = ["exact, the sum over heads part by part, each block within 1 % of its matrix (Δz = Σ z Q S V)"]
    for index, layer in enumerate(rule.layers):
        for item in layer.groups:
            where = f"  layer {index}{_whose(rule, index, item)}"
            sizes = (item.group.Q.flatten(1).norm(dim=1) * item.group.V.flatten(1).norm(dim=1)).tolist()
            kept = [part for part, size in enumerate(sizes) if size > SMALL_PART * sizes[0]]
            for part in kept:
                Q, V = item.group.Q[part], item.group.V[part]
                blocks = [*_classes("Q", Q, rule, ()), *_classes("V", V, rule, item.unread)]
                lines += wrapped(f"{where}{f' part {part}' if len(kept) > 1 else ''}  ", blocks)
            if len(kept) < len(sizes):
                lines.append(f"{where}  {_count(len(sizes) - len(kept), 'part')} below {SMALL_PART:g} of the first")
    return lines


def _whose(rule: UpdateRule, index: int, item: GroupRule) -> str:
    """Which rows a group acts on and what it sums over, where a layer has several."""
    several = len(rule.layers[index].groups) > 1
    return f" ({'+'.join(item.group.roles)}, {symbol_of(item.group.rule)})" if several else ""


def _classes(letter: str, matrix: Any, rule: UpdateRule, unread: Sequence[str]) -> list[str]:
    """The classes of a matrix's blocks that are not zero; columns of unread blocks are left out."""
    at = rule.layout.slices
    kept = [name for name in at if name not in unread]
    scale = sum(matrix[:, at[name]].square().sum().item() for name in kept) ** 0.5
    classes = {
        f"{letter}_{row}{column}": describe_block(matrix[at[row], at[column]], scale=scale)
        for row in at
        for column in kept
    }
    return [f"{name} = {found}" for name, found in classes.items() if found.name != "zero"]


def _left_out(rule: UpdateRule) -> list[str]:
    lines = ["left out, since nothing downstream reads it"]
    for index, layer in enumerate(rule.layers):
        dead = [
            f"{role} rows: {', '.join(name for name in rule.layout.columns if name not in blocks)}"
            for role, blocks in layer.live.items()
            if set(blocks) != set(rule.layout.columns)
        ]
        if dead:
            lines.append(f"  layer {index}, updates of {'; '.join(dead)}")
    return lines if len(lines) > 1 else ["left out: nothing"]
