"""The closed form of a two-word rule: polynomials p, r, s in the spectrum of the input (MATH §4).

With A_l, B_l the x columns of context and query rows and C_l, D_l their y columns, the words z_x S_xx → x
(coefficient η) and z_x S_xy → y (coefficient −γ) give, G = AᵀA of the *input*,

    A_l = A p_l(G)    B_l = B p_l(G)    C_l = r_l(AAᵀ) C    D_l = −B s_l(G) AᵀC
    p_{l+1} = p_l (1 + η_l g p_l²)    r_{l+1} = r_l (1 − γ_l g p_l²)    s_{l+1} = s_l + γ_l p_l² r_l

with w_l = s_l(G) AᵀC for a read-out that negates (−s_l(G) AᵀC for one that does not),
so every layer is one preconditioned gradient step w ← w − H⁻¹(G w − AᵀC) with H_l⁻¹ = γ_l p_l(G)², on w_l = s_l(G) AᵀC.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import Polynomial
from torch import Tensor

from interp.layout import ROLES, BlockLayout
from interp.unrolling.rule import UpdateRule
from interp.unrolling.words import Word, reproject, share_of

MAX_LISTED_DEPTH = 5  # degree (3^l − 1)/2: 121 at depth 5; see `rounding` for what evaluating such lists loses
LEAST_SHARE = 0.9
NO_CONDITIONING = 1e-4  # share of a layer's squared weights below which an η counts as 0


@dataclass(frozen=True)
class ClosedForm:
    """p, r, s of a two-word rule. Where `per_n`, g is an eigenvalue of AᵀA / n.

    Args:
        eta: signed coefficient of z_x S_xx → x by layer (0 where that update reaches nothing).
        gamma: minus the coefficient of z_x S_xy → y by layer.
        sign: of the read-out; the prediction is −sign · B s_L(G) AᵀC.
        share: of the live squared weight norm, the least over layers, that the two words explain.
    """

    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    sign: float = -1.0
    per_n: bool = False
    share: float = 1.0

    @property
    def depth(self) -> int:
        return len(self.gamma)

    @property
    def form(self) -> str | None:
        """The update's name in the literature, by the signs of its steps, or None.

        "gradient descent": every γ > 0, and no layer has an η of more than `NO_CONDITIONING` of γ² + η²; "EAGLE": every
        η < 0 < γ. Both for a read-out that negates.
        """
        if self.sign > 0 or min(self.gamma) <= 0:
            return None
        live = list(zip(self.eta, self.gamma, strict=True))[:-1]
        if all(eta**2 <= NO_CONDITIONING * (eta**2 + gamma**2) for eta, gamma in live):
            return "gradient descent"
        return "EAGLE" if all(eta < 0 for eta, _ in live) else None

    def evaluate(self, g: Any, depth: int | None = None) -> tuple[Any, Any, Any]:
        """p, r, s after `depth` layers at g: numbers, arrays, tensors, polynomials or sympy symbols."""
        one = g * 0 + 1
        p, r, s = one, one, g * 0
        for eta, gamma in zip(self.eta[:depth], self.gamma[:depth], strict=True):
            step = gamma * p**2
            s, r, p = s + step * r, r * (1 - g * step), p * (1 + eta * g * p**2)
        return p, r, s

    def coefficients(self) -> dict[str, list[list[float]]]:
        """p, r, s by depth 0, 1, … as coefficients of 1, g, g², …; as far as `MAX_LISTED_DEPTH`."""
        depths = range(min(self.depth, MAX_LISTED_DEPTH) + 1)
        by_depth = [self.evaluate(Polynomial([0.0, 1.0]), depth) for depth in depths]
        return {name: [values[i].coef.tolist() for values in by_depth] for i, name in enumerate("prs")}

    def rounding(self) -> list[float]:
        """By listed depth: what evaluating r from its coefficients in float64 is off by, at worst over g in [0, 1]."""
        g = np.linspace(0, 1, 101)
        listed = self.coefficients()["r"]
        return [float(np.abs(Polynomial(c)(g) - self.evaluate(g, depth)[1]).max()) for depth, c in enumerate(listed)]

    def inverse_hessian(self, g: Any, layer: int) -> Any:
        """H_l⁻¹ = γ_l p_l(g)², the preconditioner of layer l on the eigenvalue g."""
        return self.gamma[layer] * self.evaluate(g, layer)[0] ** 2

    def implicit_weights(
        self, A: Float[Tensor, "batch n d"], C: Float[Tensor, "batch n out"], depth: int | None = None
    ) -> Float[Tensor, "batch d out"]:
        """w_l with prediction B w_l: −sign · s_l(G) AᵀC."""
        scale = A.shape[1] if self.per_n else 1
        g, basis = torch.linalg.eigh(A.mT @ A / scale)
        s = self.evaluate(g.clamp(min=0), depth)[2]
        return -self.sign * basis @ (s[..., None] * (basis.mT @ A.mT @ C)) / scale

    def to_dict(self) -> dict[str, Any]:
        variable = "g, eigenvalue of AᵀA" + (" / n" if self.per_n else "")
        steps = {"eta": list(self.eta), "gamma": list(self.gamma), "share": self.share, "form": self.form}
        return {"variable": variable, **steps, **self.coefficients(), "rounding": self.rounding()}


def closed_form(rule: UpdateRule) -> ClosedForm | None:
    """The closed form of the rule's two words z_x S_xx → x and z_x S_xy → y, or None: see `obstacle`."""
    if obstacle(rule) is not None:
        return None
    xx, xy = two_words(rule)
    two = [_two_word_coefficients(rule, index, {xx, xy}) for index in range(rule.depth)]
    return ClosedForm(
        eta=tuple(words.get(xx, 0.0) for words in two),
        gamma=tuple(-words[xy] for words in two),
        sign=rule.layout.sign,
        per_n=rule.per_n,
        share=min(_shares(rule)),
    )


def input_block(layout: BlockLayout) -> str:
    """x: the widest block that is not read out and does not rotate with the one that is; the first of equals."""
    y = layout.rotates_with(layout.readout)
    others = [name for name in layout.columns if layout.rotates_with(name) != y]
    if not others:
        raise ValueError(
            f"the layout {layout.widths} has no block of inputs beside {layout.readout}, which is read out"
        )
    return max(others, key=lambda name: layout.widths[name])


def two_words(rule: UpdateRule) -> tuple[Word, Word]:
    """z_x S_xx → x and z_x S_xy → y, with y the read-out block and x the inputs."""
    x, y = input_block(rule.layout), rule.layout.readout
    return Word(x, x, x, x), Word(x, x, y, y)


def xy_slices(layout: BlockLayout) -> tuple[slice, slice]:
    """Where the inputs and the read-out block lie among the coordinates."""
    return layout.slices[input_block(layout)], layout.slices[layout.readout]


def obstacle(rule: UpdateRule) -> str | None:
    """Why the rule has no closed form in g, or None."""
    if len(rule.layout.columns) != 2:
        return f"the layout has {len(rule.layout.columns)} column blocks, the closed form is of x and y"
    if not see_one_context(rule):
        return "not all rows see the same context by the same heads"
    if any(two_words(rule)[1] not in layer.groups[0].words for layer in rule.layers):
        return "a layer does not write the read-out block"
    share = min(_shares(rule))
    if share < LEAST_SHARE:
        return f"z_x S_xx → x and z_x S_xy → y explain only {share:.3g} of a layer's weights"
    return None


def see_one_context(rule: UpdateRule) -> bool:
    """Do all rows of every layer see the whole context, by the same heads."""
    seen = [[(item.group.roles, item.group.rule) for item in layer.groups] for layer in rule.layers]
    return all(groups == [(ROLES, "context")] for groups in seen)


def _shares(rule: UpdateRule) -> list[float]:
    keep = set(two_words(rule))
    return [share_of(layer.groups[0].projected, layer.groups[0].fit, keep, rule.layout.widths) for layer in rule.layers]


def _two_word_coefficients(rule: UpdateRule, layer: int, keep: set[Word]) -> dict[Word, float]:
    item = rule.layers[layer].groups[0]
    if item.core and set(item.core) <= keep and keep & set(item.words) <= set(item.core):
        return dict(item.core)
    return reproject(item.projected, keep, rule.layout.widths)
