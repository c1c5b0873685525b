"""Decoding: what was read out of a model's activations, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.decoding.hessian import InverseHessian
from interp.stats import ErrorSummary

LINEAR = 1e-8
"""Relative change of the implicit weights nearby, up to which a read-out counts as linear in the query."""

AGREEMENT = {True: "agreement", False: "local_jacobian_against_unit_vectors"}
"""The name of the difference of the roads to w, by whether the read-out is linear, so that they have to meet."""


@dataclass(frozen=True, eq=False)
class ClosedFormDistance:
    """How far the decoded quantities are from those of the rule's two words, w_l = s_l(G) AᵀC.

    The two words' own certificate is that of `output`, by another road: words iterated instead of polynomials. All
    words are another rule, nearer to most models; their certificate grants the closed form nothing.

    Args:
        weights: ‖w_l − s_l(G) AᵀC‖ / ‖s_l(G) AᵀC‖ [depth, prompt].
        spectrum: the same of the eigenvalues of s_l, in norm over the row space [depth, prompt].
        output: of the prediction B s_L(G) AᵀC.
        core: the certificate of the two words alone on these prompts, iterated layer by layer.
        words: that of all words.
    """

    weights: Tensor
    spectrum: Tensor
    output: ErrorSummary
    core: ErrorSummary
    words: ErrorSummary

    def to_dict(self) -> dict[str, Any]:
        return {
            "w_relative_distance": medians(self.weights),
            "s_relative_distance": medians(self.spectrum),
            "output": self.output.to_dict(),
            "core_certificate": self.core.to_dict(),
            "words_certificate": self.words.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Decoding:
    """The implicit state of a model at depth 0, 1, …, L, in float64. Tables and JSON give medians over prompts.

    Args:
        weights: w_l by the Jacobian of the read-out in the query [depth, prompt, d, out].
        by_queries: w_l by unit-vector queries, likewise.
        by_rule: w_l of the exact rule, or None where there is none.
        least_squares: A⁺C [prompt, d, out].
        w_relative_error: ‖w_l − A⁺C‖ / ‖A⁺C‖ [depth, prompt].
        agreement: the largest relative difference between any two roads to w_l [depth, prompt]. Where the model is not
            linear in the query this is how far its local weights are from what it answers to unit vectors.
        label_sensitivity: how the prediction moves with the labels, ∂f_l/∂C [depth, prompt, out, n, label].
        mixed: ∂w_l/∂C = ∂²f_l/∂b∂C [depth, prompt, d, out, n, label].
        mixed_by_rule: the same of the exact rule, or None.
        mixed_agreement: their relative difference [depth, prompt], or None.
        hessian: the inverse Hessian; None where rows see different contexts, so that there is no single G.
        contributions: what each word adds to the prediction, by layer [prompt, query, out]; whole layers where there is
            no rule. That of layer 0 also holds `INPUT`, what is read out of the input itself: they sum to the
            prediction.
        nonlinearity: the largest relative change of w_l over the query's neighbourhood [depth, prompt].
        radius: of that neighbourhood, relative to the query's norm.
        closed_form: distance to the closed form, or None.
        undefined: what these quantities do not mean here, or could not be had, and why.
    """

    weights: Tensor
    by_queries: Tensor
    by_rule: Tensor | None
    least_squares: Tensor
    w_relative_error: Tensor
    agreement: Tensor
    label_sensitivity: Tensor
    mixed: Tensor
    mixed_by_rule: Tensor | None
    mixed_agreement: Tensor | None
    hessian: InverseHessian | None
    contributions: Sequence[Mapping[str, Tensor]]
    nonlinearity: Tensor
    radius: float
    closed_form: ClosedFormDistance | None
    undefined: Mapping[str, str]

    @property
    def prompts(self) -> int:
        return self.weights.shape[1]

    @property
    def is_linear(self) -> bool:
        """Is the read-out linear in the query, so that w_l is one for all queries."""
        return bool(self.nonlinearity.max() <= LINEAR)

    @property
    def roads(self) -> tuple[str, ...]:
        """The roads to w_l that were taken."""
        return ("jacobian", "unit queries", *(["exact rule"] if self.by_rule is not None else []))

    def shares(self) -> list[dict[str, float]]:
        """Each word's share of the prediction by layer, Σ ⟨contribution, f⟩ / Σ ‖f‖², f the sum of all contributions
        and Σ over prompts; the prompts' own shares have no mean where f is one number near 0. They sum to 1."""
        parts = torch.stack([part for layer in self.contributions for part in layer.values()])
        total = parts.sum(0)
        share = (parts * total).flatten(1).sum(1) / total.square().sum()
        values = iter(share.tolist())
        return [{label: next(values) for label in layer} for layer in self.contributions]

    def by_depth(self) -> list[dict[str, float | None]]:
        """The quantities of the table, one entry a depth; agreement the worst prompt's, others medians. Where the
        read-out is not linear, its name says what it is: local Jacobian against the answers to unit vectors."""
        hessian = self.hessian
        rows: dict[str, list[Any]] = {
            "depth": list(range(len(self.weights))),
            "w_relative_error": medians(self.w_relative_error),
            "inverse_hessian_relative_error": _medians_of(hessian, "relative_error", len(self.weights)),
            AGREEMENT[self.is_linear]: self.agreement.amax(1).tolist(),
            "mixed_agreement": [None] * len(self.weights)
            if self.mixed_agreement is None
            else self.mixed_agreement.amax(1).tolist(),
            "nonlinearity": medians(self.nonlinearity),
            "mixed_remainder": _medians_of(hessian, "remainder", len(self.weights)),
            "inverse_hessian_off_diagonal": _medians_of(hessian, "off_diagonal", len(self.weights)),
            "step_undetermined": [None] * len(self.weights)
            if hessian is None
            else [*hessian.undetermined.tolist(), None],
        }
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        from interp.decoding.text import spectra

        return {
            "n_prompts": self.prompts,
            "roads": list(self.roads),
            "linear": self.is_linear,
            "radius": self.radius,
            "depths": self.by_depth(),
            "spectra": spectra(self),
            "contributions": self.shares(),
            "closed_form": self.closed_form.to_dict() if self.closed_form else None,
            "undefined": dict(self.undefined),
        }

    def __str__(self) -> str:
        from interp.decoding.text import to_lines

        return "\n".join(to_lines(self))


def medians(values: Float[Tensor, "depth prompt"]) -> list[float]:
    """By depth, over prompts."""
    return values.median(dim=1).values.tolist()


def _medians_of(hessian: InverseHessian | None, name: str, depths: int) -> list[float | None]:
    return [None] * depths if hessian is None else [*medians(getattr(hessian, name))]
