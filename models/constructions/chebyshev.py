"""Richardson iteration whose step sizes are the inverse Chebyshev nodes of an interval."""

import math
from collections.abc import Sequence

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.gradient_descent import gradient_descent_model


def chebyshev_nodes(
    shape: PromptShape, interval: tuple[float, float], layers: int, order: Sequence[int] | None = None
) -> Construction:
    """w ← w − γ_l (AᵀA w − AᵀC), 1/γ_l the L Chebyshev nodes of an interval that holds the spectrum of AᵀA.

    After the last layer, and only then, this is Chebyshev semi-iteration: the residual polynomial is
    T_L((b + a − 2g)/(b − a)) / T_L((b + a)/(b − a)), the smallest on [a, b]. One layer is gradient descent, and any
    two different step sizes are the nodes of some interval.

    Args:
        order: which node each layer takes, a permutation of 0 … layers − 1; node k is
            (a + b)/2 + (b − a)/2 · cos(π (2k + 1)/(2L)).

    Source: Young 1953; the layer is that of von Oswald et al., arXiv 2212.07677, proposition 1.
    """
    low, high = interval
    check_positive("chebyshev_nodes", interval=[low, high])
    order = list(range(layers)) if order is None else list(order)
    if low >= high or sorted(order) != list(range(layers)):
        raise ValueError(
            f"chebyshev_nodes: needs an interval with a < b and an order that is a permutation of 0 … {layers - 1}, "
            f"got {interval} and {order}"
        )
    nodes = [(low + high) / 2 + (high - low) / 2 * math.cos(math.pi * (2 * k + 1) / (2 * layers)) for k in order]
    gamma = [1 / node for node in nodes]
    settings = {"interval": [low, high], "order": order, "gamma": gamma, **shape.settings()}
    return Construction("Chebyshev nodes", gradient_descent_model(shape, gamma), settings)
