"""EAGLE when the context rows are spread over machines."""

from collections.abc import Sequence

from interp.layout import Visibility
from models.constructions.construction import Construction, PromptShape, check_negative, check_positive
from models.constructions.eagle import eagle_head
from models.constructions.weights import from_heads


def distributed_eagle(
    shape: PromptShape,
    machines: int,
    eta: Sequence[float],
    gamma: Sequence[float],
    query_eta: Sequence[float],
    query_gamma: Sequence[float],
) -> Construction:
    """Each machine steps on its own rows; the queries step on the sum over all machines, with their own coefficients.

        A_μ ← A_μ + η_l A_μ A_μᵀA_μ       B ← B + η'_l B Σ_μ A_μᵀA_μ
        C_μ ← C_μ − γ_l A_μ A_μᵀC_μ       D ← D − γ'_l B Σ_μ A_μᵀC_μ

    (η', γ') = (η, γ) sums over the machines, (η, γ)/M averages. Two heads: one that only context rows use, under the
    machine mask, and one that only queries use.

    Source: arXiv 2509.19702, the distributed setting.
    """
    check_negative("distributed_eagle", eta=list(eta), query_eta=list(query_eta))
    check_positive("distributed_eagle", gamma=list(gamma), query_gamma=list(query_gamma))
    rules = (Visibility("machine", "none"), Visibility("none", "context"))
    layout = shape.layout(machines=machines, visibility=rules)
    context, query = zip(eta, gamma, strict=True), zip(query_eta, query_gamma, strict=True)
    layers = [
        [eagle_head(layout, *of_context), eagle_head(layout, *of_query)]
        for of_context, of_query in zip(context, query, strict=True)
    ]
    steps = {"eta": eta, "gamma": gamma, "query_eta": query_eta, "query_gamma": query_gamma}
    settings = {"machines": machines, **{name: list(values) for name, values in steps.items()}, **shape.settings()}
    return Construction("distributed EAGLE", from_heads(layers, layout, shape.scale), settings)
