"""Gradient descent with momentum, in velocity columns."""

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.weights import from_heads, linear_heads, place


def heavy_ball(shape: PromptShape, gamma: float, beta: float, layers: int) -> Construction:
    """w_{l+1} = w_l − γ (AᵀA w_l − AᵀC) + β (w_l − w_{l−1}), w_{−1} = w_0 = 0.

    Velocity columns v, which rotate with y and start at 0, hold the last change of every row's y:

        v ← β v − γ z_x S_xy,     y ← y + β v − γ z_x S_xy

    The momentum is a linear term: β v and (β − 1) v are written through the constant column, one head a column of y.

    Source: Polyak 1964, the heavy-ball method. Weights: ours; arXiv 2410.07263 reaches it with memory registers.
    """
    check_positive("heavy_ball", gamma=gamma, beta=beta)
    layout = shape.layout({"constant": 1, "velocity": shape.d_out}, symmetry={"velocity": "y"})
    gradient = (place(layout, {("x", "x"): 1.0}), place(layout, {("y", "y"): -gamma, ("y", "velocity"): -gamma}))
    write = {"y": shape.linear(beta), "velocity": shape.linear(beta - 1)}
    heads = [gradient, *linear_heads(layout, {"velocity": 1.0}, write)]
    settings = {"gamma": gamma, "beta": beta, **shape.settings(needs_n=True)}
    return Construction("heavy ball", from_heads([heads] * layers, layout, shape.scale), settings)
