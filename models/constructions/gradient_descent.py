"""Gradient descent on ½‖A w − C‖², one step a layer, with one step size or a schedule."""

from collections.abc import Sequence

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.weights import from_heads, place
from models.transformer import HookedTransformer


def gradient_descent(shape: PromptShape, gamma: float, layers: int) -> Construction:
    """w ← w − γ (AᵀA w − AᵀC), from w = 0, in every layer. Converges for 0 < γ < 2/λ_max(AᵀA).

    The tokens carry residuals, C_l = C − A w_l and D_l = −B w_l, so that one word does it: z_x S_xy → y with −γ.

    Source: von Oswald et al., arXiv 2212.07677, proposition 1 (their η/N is γ with scale "n").
    """
    check_positive("gradient_descent", gamma=gamma)
    model = gradient_descent_model(shape, [gamma] * layers)
    return Construction("gradient descent", model, {"gamma": gamma, **shape.settings()})


def scheduled_gradient_descent(shape: PromptShape, gamma: Sequence[float]) -> Construction:
    """w ← w − γ_l (AᵀA w − AᵀC) with a step size a layer.

    Source: von Oswald et al., arXiv 2212.07677, proposition 1, layer by layer.
    """
    check_positive("scheduled_gradient_descent", gamma=list(gamma))
    model = gradient_descent_model(shape, gamma)
    return Construction("scheduled GD", model, {"gamma": list(gamma), **shape.settings()})


def gradient_descent_model(shape: PromptShape, gamma: Sequence[float]) -> HookedTransformer:
    """Q = diag(I, 0), V = diag(0, −γ_l I)."""
    layout = shape.layout()
    layers = [[(place(layout, {("x", "x"): 1.0}), place(layout, {("y", "y"): -step}))] for step in gamma]
    return from_heads(layers, layout, shape.scale)
