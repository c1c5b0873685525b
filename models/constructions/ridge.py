"""Gradient descent on the ridge loss."""

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.weights import from_heads, linear_heads, place


def ridge_gradient_descent(shape: PromptShape, gamma: float, penalty: float, layers: int) -> Construction:
    """w ← w − γ (AᵀA w − AᵀC + λ w), λ = `penalty`: gradient descent on ½‖A w − C‖² + λ/2 ‖w‖².

    In residuals, C_l = C − A w_l and D_l = −B w_l, the shrinkage is linear:

        y ← y − γ z_x S_xy − γλ (y − label)

    with label a copy of the first y (rotating with y), 0 in query rows. From the third layer on it is needed: without
    it y is all that a layer can shrink, C_l = r_l(AAᵀ) C with r_l a product of real factors a_k − γ_k g, and ridge
    descent asks for r_2 = γ² g² − γ (2 − γλ) g + 1, whose roots are complex (0 < γλ < 4). Shrinking y in all rows
    computes D_L = −B (a^L − (a − γ AᵀA)^L) (AᵀA)⁺ AᵀC with a = 1 − γλ instead, which tends to 0.

    Source: the shrinkage term of Akyürek et al., arXiv 2211.15661, in the layer of von Oswald et al., arXiv 2212.07677.
    """
    check_positive("ridge_gradient_descent", gamma=gamma, penalty=penalty)
    layout = shape.layout({"constant": 1, "label": shape.d_out}, symmetry={"label": "y"})
    gradient = (place(layout, {("x", "x"): 1.0}), place(layout, {("y", "y"): -gamma}))
    shrinkage = linear_heads(layout, {"y": 1.0, "label": -1.0}, {"y": shape.linear(-gamma * penalty)})
    model = from_heads([[gradient, *shrinkage]] * layers, layout, shape.scale)
    return Construction("ridge GD", model, {"gamma": gamma, "penalty": penalty, **shape.settings(needs_n=True)})
