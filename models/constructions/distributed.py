"""EAGLE when the context rows are spread over machines: two heads by role, or one head a machine."""

from collections.abc import Sequence

import torch

from interp.kernels import AttentionKernel
from interp.layout import Visibility
from models.config import TransformerConfig
from models.constructions.construction import Construction, PromptShape, check_negative, check_positive
from models.constructions.eagle import eagle_head
from models.constructions.weights import from_heads, model_from, place


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


def one_head_a_machine(shape: PromptShape, machines: int, eta: Sequence[float], gamma: Sequence[float]) -> Construction:
    """Head k serves machine k: it steps on that machine's rows and tells the queries of them.

        A_μ ← A_μ + η_l A_μ A_μᵀA_μ       B ← B + η_l B Σ_μ A_μᵀA_μ
        C_μ ← C_μ − γ_l A_μ A_μᵀC_μ       D ← D − γ_l B Σ_μ A_μᵀC_μ

    W_Q = W_K = diag(I, 0) and W_V = I, so what leaves head k at a query row is the message B [A_kᵀA_k, A_kᵀC_k] of
    machine k, and W_O = diag(η I, −γ I) turns it into a step. A head has one W_O for both roles: the queries' steps are
    the machines' own, summed over them.

    Source: arXiv 2509.19702, the distributed setting, one attention head a machine.
    """
    check_negative("one_head_a_machine", eta=list(eta))
    check_positive("one_head_a_machine", gamma=list(gamma))
    if machines < 1:
        raise ValueError(f"one_head_a_machine: machines={machines} must be at least 1")
    rules = [Visibility(f"machine {k}", f"machine {k}") for k in range(machines)]
    layout = shape.layout(machines=machines, visibility=rules)
    steps = [place(layout, {("x", "x"): e, ("y", "y"): -c}) for e, c in zip(eta, gamma, strict=True)]
    W_O = torch.stack(steps)[:, None].expand(-1, machines, -1, -1)
    reads = place(layout, {("x", "x"): 1.0}).expand_as(W_O)
    values = torch.eye(layout.d_model, dtype=torch.float64).expand_as(W_O)
    cfg = TransformerConfig(
        len(steps), machines, layout.d_model, layout.d_model, kernel=AttentionKernel(scale=shape.scale)
    )
    model = model_from(cfg, layout, {"W_Q": reads, "W_K": reads, "W_V": values, "W_O": W_O})
    settings = {"machines": machines, "eta": list(eta), "gamma": list(gamma), **shape.settings()}
    return Construction("distributed EAGLE", model, settings)
