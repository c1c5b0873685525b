"""The mean of the labels."""

from collections.abc import Sequence

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.weights import from_heads, place


def averaging(shape: PromptShape, gamma: Sequence[float] = (1.0,)) -> Construction:
    """The answer to every query is the mean of y over the context: z_constant S[constant, y] → y.

    Layer l takes the share γ_l of the mean that is left, off all rows; a layer with γ_l = 1 leaves nothing. (This is
    gradient descent on a constant; the "averaging" of Garg et al., Σ x y / n, is one step of gradient descent instead.)

    Source: MATH §9.

    Raises:
        ValueError: no γ_l is 1, so the answer would be the fraction 1 − Π(1 − γ_l) of the mean.
    """
    check_positive("averaging", gamma=list(gamma))
    if 1.0 not in gamma:
        raise ValueError(f"averaging: one γ must be 1, or a fraction of the mean is left over; got {list(gamma)}")
    layout = shape.layout({"constant": 1})
    query = place(layout, {("constant", "constant"): 1.0})
    layers = [[(query, place(layout, {("y", "y"): shape.linear(-step)}))] for step in gamma]
    settings = {"gamma": list(gamma), **shape.settings(needs_n=True)}
    return Construction("averaging", from_heads(layers, layout, shape.scale), settings)
