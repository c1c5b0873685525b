"""A kernel rule as text: the similarity, what each run of equal layers does, the update rule, the certificate."""

from interp.unrolling.kernel_operator import KernelLayer, KernelRule
from interp.unrolling.kernel_operator_form import NotRichardson, richardson_form, sum_of
from interp.unrolling.kernel_operator_heads import KernelHead


def text(rule: KernelRule) -> str:
    """The whole of it."""
    blocks = ", ".join(f"{name} ({width})" for name, width in rule.layout.widths.items())
    lines = [f"kernel operators of {len(rule.layers)} layers of softmax attention", f"column blocks {blocks}"]
    described = [_layer(layer) for layer in rule.layers]
    start = 0
    for index in range(1, len(described) + 1):
        if index == len(described) or described[index] != described[start]:
            name = f"layer {start}" if index == start + 1 else f"layers {start}–{index - 1}"
            lines += [name, *(f"  {line}" for line in described[start])]
            start = index
    return "\n".join([*lines, *_form(rule), *_certificate(rule)])


def _layer(layer: KernelLayer) -> list[str]:
    heads = [line for index, head in enumerate(layer.heads) for line in _head(index, head)]
    return heads + [
        f"MLP: {name} += {_rounded(terms.terms)}" + ("" if terms.named else f"   (leaves out {terms.residual:.1g})")
        for name, terms in layer.mlp.items()
    ]


def _rounded(terms: dict[tuple[str, ...], float]) -> str:
    return sum_of({term: float(f"{value:.3g}") for term, value in terms.items()})


def _head(index: int, head: KernelHead) -> list[str]:
    if head.bandwidth is None:
        score, operator = f"score u M u', on x {head.similarity}", "S"
    else:
        score, operator = f"score −‖x − x'‖²/2h², h = {head.bandwidth:.4g}", "D⁻¹K"
    if head.shift is not None:
        score += f"; log {head.shift:.4g} for the row marked by {head.columns.flag}"
        operator = f"(D + {head.shift:.4g})⁻¹K"
    moves = []
    for (source, into), found in head.moved.items():
        at_flag = source == head.columns.flag and head.shift is not None
        what = "the weight on that row" if at_flag else f"{operator} {source}"
        moves.append(
            f"{into} += {found.numbers['c']:.4g} {what}" if "c" in found.numbers else f"{into} += {what} ({found})"
        )
    return [f"head {index}: {score}", *(f"  {move}" for move in moves)]


def _form(rule: KernelRule) -> list[str]:
    if not any(layer.mlp for layer in rule.layers):
        return []
    try:
        return ["update rule", *(f"  {line}" for line in str(richardson_form(rule)).splitlines())]
    except NotRichardson as error:
        return [f"no update rule has a name here: {error}"]


def _certificate(rule: KernelRule) -> list[str]:
    if rule.output is None:
        return []
    layers = "  ".join(f"{error:.2g}" for error in rule.by_layer)
    return [
        f"certificate on {rule.output.prompts} prompts, float64: answers of the rule against the model's, relative, "
        f"max {rule.output.max_relative_error:.3g}, rms {rule.output.rms_relative_error:.3g}",
        f"  largest error of a layer's update, over its largest update: {layers}",
    ]
