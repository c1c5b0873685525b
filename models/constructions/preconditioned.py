"""Gradient descent with a full preconditioner a layer."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from models.constructions.construction import Construction, PromptShape
from models.constructions.weights import from_heads, place


def preconditioned_gradient_descent(
    shape: PromptShape, preconditioners: Sequence[Float[Tensor, "x x"]]
) -> Construction:
    """w ← w − P_l (AᵀA w − AᵀC), P_l symmetric positive definite: Q = diag(P_l, 0), V = diag(0, −I).

    Source: Ahn et al., arXiv 2306.00297, lemma 1 (their A_l is our P_l up to sign and the factor 1/n).

    Raises:
        ValueError: a preconditioner is not symmetric positive definite, or not [d, d].
    """
    layout = shape.layout()
    for P in preconditioners:
        if P.shape != (shape.d, shape.d) or not torch.allclose(P, P.mT) or torch.linalg.eigvalsh(P).min() <= 0:
            raise ValueError(
                f"preconditioned_gradient_descent: a preconditioner must be symmetric positive definite "
                f"[{shape.d}, {shape.d}], got one of the shape {list(P.shape)} that is not"
            )
    value = place(layout, {("y", "y"): -1.0})
    model = from_heads([[(place(layout, {("x", "x"): P}), value)] for P in preconditioners], layout, shape.scale)
    settings = {"preconditioners": [P.tolist() for P in preconditioners], **shape.settings()}
    return Construction("preconditioned GD", model, settings)
