"""A frozen rule as text."""

from interp.linearisation.frozen_rule import FrozenRule
from interp.unrolling.rule import symbol_of

SHOWN = 6  # words of a layer


def to_text(rule: FrozenRule) -> str:
    """What the frozen model is, and the largest words of each layer."""
    norms = f"{len(rule.scale_points)} norm" + ("s" if len(rule.scale_points) != 1 else "")
    lines = [
        f"with the scales s of its {norms} frozen at a prompt, each layer is linear attention on rows ẑ = (z/s, 1):",
        "  Δz = Σ ẑ Q̂ Ŝ V̂,  Ŝ = Σ ẑᵀẑ over the rows seen; Q̂, V̂ of the weights alone, one scale s a row and norm",
    ]
    for index, layer in enumerate(rule.layers):
        after = "" if layer.after is None else ", then z ← z N/s + b with the stream's own norm"
        lines.append(f"  layer {index}: words explain {layer.rule.weights_explained:.4f} of the squared weights{after}")
        for item in layer.rule.groups:
            largest = sorted(item.projected.items(), key=lambda entry: -abs(entry[1]))[:SHOWN]
            words = [
                f"{value:+.4g} {word.text(symbol_of(item.group.rule).replace('S', 'Ŝ'))}" for word, value in largest
            ]
            lines.append(
                f"    {'+'.join(item.group.roles)} rows, largest of {len(item.projected)}: {';  '.join(words)}"
            )
    return "\n".join(lines)
