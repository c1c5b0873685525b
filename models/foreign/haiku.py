"""Haiku parameter trees of linear self-attention: {module: {"w": array}}, as the code of arXiv 2212.07677 makes them.

A layer is four modules, in sorted order key, linear (the output), query, value, each y = x w without a bias. Heads lie
side by side in the columns. Keys and values come from the context rows alone; the update is added to the token; the
prediction is minus the last column of the query row unless the layout says otherwise.
"""

import re

from torch import Tensor

from interp.layout import BlockLayout
from models.foreign.arrays import expect_shape, listed, to_weights
from models.foreign.contents import Contents
from models.foreign.layouts import pairs_layout, to_layout
from models.foreign.stacks import LinearLayer, linear_stack, split_heads, split_output, stack_forward
from models.foreign.tokens import CODED, PAIRS, TokenForm
from models.foreign.value import Foreign, ForeignError, check_parity

NAME = "haiku"
OPTIONS = ("layout", "heads", "layers")
ROLES = {"key": "K", "query": "Q", "value": "V", "linear": "O", "output": "O"}
_UNSAID = "the answer is +y, for the layout does not say where it is; interp.readout finds where a model answers"


def takes(contents: Contents) -> bool:
    """Is this a tree of attention modules."""
    return contents.kind == "pickle" and any(_role(name) for name in contents.arrays)


def load(
    contents: Contents, layout: str | BlockLayout | None = None, heads: int = 1, layers: int | None = None
) -> Foreign:
    """The model of a Haiku tree.

    Args:
        layout: the meaning of the columns; None for x, then one y. Blocks after x and y are taken for a sinusoidal
            positional code.
        heads: heads of every layer, which the shapes do not tell.
        layers: how often the one layer of the tree is run (the recurrent models of that code); None for as many layers
            as the tree has.

    Raises:
        ForeignError: a module that is no attention, a bias, shapes that do not fit.
        ValueError: the layout does not fit the width of the tokens.
    """
    weights, notes = to_weights(contents.arrays, contents.name)
    stack = _repeat(_layers(weights, heads), layers)
    d_model = stack[0].Q.shape[1]
    chosen = pairs_layout(d_model, sign=-1.0) if layout is None else to_layout(layout)
    model = linear_stack(stack, chosen)
    reference = "numpy from the tree's arrays, split into heads"
    parity = check_parity(model, lambda z: stack_forward(stack, chosen, z), reference, stream=True)
    options = {"layout": chosen.to_dict(), "heads": heads, "layers": len(stack)}
    unsaid = isinstance(layout, str) and "readout" not in layout
    assumed = (*_assumptions(layout is None, heads, d_model), *((_UNSAID,) if unsaid else ()), *notes)
    return Foreign(model, _form(chosen), contents.provenance(NAME, **options), assumed, parity)


def _assumptions(default_layout: bool, heads: int, d_model: int) -> tuple[str, ...]:
    """What the file does not say."""
    notes = ["linear attention without softmax, keys and values from the context rows only, residual added"]
    if heads == 1:
        notes.append("one head, for the shapes do not tell; give --heads for another number")
    if default_layout:
        notes.append(
            f"columns x ({d_model - 1}) and y (1), answer -y, as that code reads it; give --layout for another"
        )
    return tuple(notes)


def _form(layout: BlockLayout) -> TokenForm | None:
    widths = layout.widths
    code = layout.d_model - widths.get("x", 0) - widths.get("y", 0)
    if list(widths)[:2] != ["x", "y"] or code % 2:
        return None
    return TokenForm(CODED, code) if code else TokenForm(PAIRS)


def _layers(weights: dict[str, Tensor], heads: int) -> list[LinearLayer]:
    found: dict[str, dict[str, Tensor]] = {}
    for name, W in weights.items():
        role = _role(name)
        if role is None:
            raise ForeignError(
                f"the parameter {name!r} belongs to no linear attention layer; the modules read are "
                f"{', '.join(ROLES)} with w and no bias, and the tree has {listed(weights)}"
            )
        parts = found.setdefault(name.rpartition("/")[0].rpartition("/")[0], {})
        if role in parts:
            raise ForeignError(f"the layer of {name!r} has two {role} matrices; a layer has one of each")
        parts[role] = W
    return [_layer(prefix, found[prefix], heads) for prefix in sorted(found, key=_natural)]


def _layer(prefix: str, parts: dict[str, Tensor], heads: int) -> LinearLayer:
    if missing := sorted(set(ROLES.values()) - set(parts)):
        raise ForeignError(f"the layer {prefix!r} has no {', '.join(missing)} matrix")
    d_model, _ = expect_shape(parts, "Q", None, None)
    expect_shape(parts, "K", *parts["Q"].shape)
    _, d_value = expect_shape(parts, "V", d_model, None)
    expect_shape(parts, "O", d_value, d_model)
    Q, K, V = (split_heads(parts[name], heads) for name in "QKV")
    return LinearLayer(Q, K, V, split_output(parts["O"], heads))


def _role(name: str) -> str | None:
    module, _, parameter = name.rpartition("/")
    return ROLES.get(module.rpartition("/")[2]) if parameter == "w" else None


def _natural(name: str) -> list[int | str]:
    """Numbers by value: layer_10 after layer_2."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _repeat(stack: list[LinearLayer], layers: int | None) -> list[LinearLayer]:
    if layers is None or layers == len(stack):
        return stack
    if len(stack) > 1 or layers < 1:
        raise ForeignError(f"the tree has {len(stack)} layers of its own, which layers={layers} does not fit")
    return stack * layers
