"""Gradient descent in the function space of a kernel."""

from collections.abc import Sequence

import torch

from interp.kernels import AttentionKernel
from models.config import TransformerConfig
from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.weights import model_from, place

SIMILARITIES = ("exp", "gaussian", "laplace", "relu")


def functional_gradient_descent(
    shape: PromptShape, similarity: str, gamma: Sequence[float], bandwidth: float = 1.0
) -> Construction:
    """f ← f − γ_l Σ_k (f(x_k) − y_k) k(·, x_k), from f = 0: the words of gradient descent with k in place of xᵀx'.

    The tokens carry residuals, y_k − f_l(x_k) in the context and −f_l(x_q) in the queries. k is the similarity of x/h
    and x'/h, h the bandwidth: "exp", "gaussian", "laplace", "relu" (interp.kernels); not "elu1",
    whose φ(0) = 1 would add a constant for every column that a head leaves empty. Rows are not normalised:
    softmax would divide each row by its own sum, which is another operator. The sum over the context is not divided
    by n either, so a γ that converges (0 < γ < 2/λ_max(K)) depends on n.

    Source: Cheng, Chen and Sra, arXiv 2312.06528, proposition 3.1.

    Raises:
        ValueError: another similarity, or a shape with a scale.
    """
    check_positive("functional_gradient_descent", gamma=list(gamma), bandwidth=bandwidth)
    if similarity not in SIMILARITIES or shape.scale != "none":
        raise ValueError(
            f"functional_gradient_descent: takes one of {', '.join(SIMILARITIES)} and the scale 'none' (a scale would "
            f"sit inside the exponential), got {similarity!r} and {shape.scale!r}"
        )
    layout, layers = shape.layout(), len(gamma)
    cfg = TransformerConfig(layers, 1, layout.d_model, layout.d_model, kernel=AttentionKernel(similarity))
    read = place(layout, {("x", "x"): 1 / bandwidth}).expand(layers, 1, -1, -1)
    value = torch.stack([place(layout, {("y", "y"): -step})[None] for step in gamma])
    eye = torch.eye(layout.d_model, dtype=torch.float64).expand(layers, 1, -1, -1)
    model = model_from(cfg, layout, {"W_Q": read, "W_K": read, "W_V": value, "W_O": eye})
    settings = {"similarity": similarity, "bandwidth": bandwidth, "gamma": list(gamma), **shape.settings()}
    return Construction("functional GD", model, settings)
