"""GD++, EAGLE and scheduled EAGLE: three ways to set the layer Q = diag(I, 0), V = diag(η I, −γ I) (MATH §4)."""

from collections.abc import Sequence

from interp.layout import BlockLayout
from models.constructions.construction import Construction, PromptShape, check_negative, check_positive
from models.constructions.weights import Head, from_heads, place
from models.transformer import HookedTransformer

THEORY = (-1 / 3, 1.0)
"""(η, γ) in units of 1/‖A_l‖²: second order."""
T3 = (-4 / 3, 4 / 3)
"""(η, γ) in units of 1/‖A_l‖²: σ ← −T₃(σ)/3, a factor 1/3 a layer whatever κ."""


def gd_plus_plus(shape: PromptShape, eta: float, gamma: float, layers: int) -> Construction:
    """A ← A + η A AᵀA and C ← C − γ A AᵀC (B and D likewise), the same η < 0 < γ in every layer.

    Source: von Oswald et al., arXiv 2212.07677, "GD++" (their H(X) = I − γ X Xᵀ has γ = −η).
    """
    check_negative("gd_plus_plus", eta=eta)
    check_positive("gd_plus_plus", gamma=gamma)
    model = eagle_model(shape, [eta] * layers, [gamma] * layers)
    return Construction("GD++", model, {"eta": eta, "gamma": gamma, **shape.settings()})


def eagle(shape: PromptShape, eta: float, gamma: float, layers: int, norm: float = 1.0) -> Construction:
    """η_l = η/‖A_l‖² and γ_l = γ/‖A_l‖², for prompts of ‖A_0‖₂ = `norm` (of A/√n with scale "n").

    The weights cannot measure ‖A_l‖, so the norms are given: the largest that σ ↦ |σ (1 + η_l σ²)| reaches on
    [0, ‖A_l‖], which is (2/3)^l ‖A_0‖ for `THEORY` and 3^{-l} ‖A_0‖ for `T3` (coefficients 4/3 · 9^l).

    Source: arXiv 2509.19702, theorem 1 for `THEORY`; MATH §4 for `T3`.
    """
    check_negative("eagle", eta=eta)
    check_positive("eagle", gamma=gamma, norm=norm)
    norms = [norm * contraction(eta) ** layer for layer in range(layers)]
    model = eagle_model(shape, [eta / size**2 for size in norms], [gamma / size**2 for size in norms])
    return Construction("EAGLE", model, {"eta": eta, "gamma": gamma, "norms": norms, **shape.settings()})


def scheduled_eagle(shape: PromptShape, eta: Sequence[float], gamma: Sequence[float]) -> Construction:
    """A ← A + η_l A AᵀA and C ← C − γ_l A AᵀC with free η_l < 0 < γ_l. The last η has no effect on the output.

    Source: arXiv 2509.19702, the form extracted from trained weights.
    """
    check_negative("scheduled_eagle", eta=list(eta))
    check_positive("scheduled_eagle", gamma=list(gamma))
    model = eagle_model(shape, eta, gamma)
    return Construction("scheduled EAGLE", model, {"eta": list(eta), "gamma": list(gamma), **shape.settings()})


def contraction(eta: float) -> float:
    """max |σ (1 + η σ²)| over 0 ≤ σ ≤ 1, for η < 0."""
    inside = 2 / 3 * (-3 * eta) ** -0.5 if eta <= -1 / 3 else 0.0
    return max(abs(1 + eta), inside)


def eagle_head(layout: BlockLayout, eta: float, gamma: float) -> Head:
    """Q = diag(I, 0), V = diag(η I, −γ I)."""
    return place(layout, {("x", "x"): 1.0}), place(layout, {("x", "x"): eta, ("y", "y"): -gamma})


def eagle_model(shape: PromptShape, eta: Sequence[float], gamma: Sequence[float]) -> HookedTransformer:
    """One such head a layer."""
    layout = shape.layout()
    layers = [[eagle_head(layout, *pair)] for pair in zip(eta, gamma, strict=True)]
    return from_heads(layers, layout, shape.scale)
