"""A rule as plain values for JSON."""

from typing import Any

from interp.unrolling.messages import messages
from interp.unrolling.projections import is_rank_limited, projections
from interp.unrolling.rule import UpdateRule
from interp.unrolling.spectral import closed_form, obstacle


def to_dict(rule: UpdateRule, exact: bool = False) -> dict[str, Any]:
    """Plain values for JSON: layout, layers, closed form, what fitting to prompts found.

    Also what machines send, where there are several, and projections, where heads are of rank below d; else None.
    """
    form, function = closed_form(rule), rule.function
    return {
        "layout": rule.layout.to_dict(),
        "kernel": rule.kernel.to_dict(),
        "coefficients_from": dict(rule.source),
        "layers": [_layer(rule, index, exact) for index in range(rule.depth)],
        "closed_form": form.to_dict() if form else {"p": None, "r": None, "s": None, "why_not": obstacle(rule)},
        "messages": messages(rule).to_dict() if rule.layout.machines > 1 else None,
        "projections": projections(rule).to_dict() if is_rank_limited(rule) else None,
        "core": {key: value for key, value in function.to_dict().items() if key != "explained"} if function else None,
    }


def _layer(rule: UpdateRule, index: int, exact: bool) -> dict[str, Any]:
    layer, function = rule.layers[index], rule.function
    entry: dict[str, Any] = {
        "words": layer.labelled("words"),
        "core": layer.labelled("core") if function else None,
        "explained": {
            "weights": layer.weights_explained,
            "function": function.explained["words"][index] if function else None,
            "function_core": function.explained["core"][index] if function else None,
        },
        "live": {role: list(blocks) for role, blocks in layer.live.items()},
    }
    if exact:
        entry["heads"] = [
            {"roles": group.roles, "rule": group.rule, "Q": group.Q.tolist(), "V": group.V.tolist()}
            for group in (item.group for item in layer.groups)
        ]
    return entry
