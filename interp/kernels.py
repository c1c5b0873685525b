"""Attention kernels: similarity x row normalisation x scale, with masks that never make a NaN.

A kernel turns queries and keys into scores (what TransformerLens calls `attn_scores`) and scores into the pattern that
weighs the values. Two kinds of similarity:

- feature maps φ: score = scale · φ(q)·φ(k), pattern = score. The sum over keys needs O(n) operations.
- score functions: score = scale · s(q, k), pattern = exp(score).

Row normalisation "sum" divides a row by its sum over the visible keys; softmax is "exp" with "sum".

`KERNELS` gives the usual ones names; `register_kernel` adds others.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import get_close_matches

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FeatureMap = Callable[[Tensor], Tensor]

FEATURE_MAPS: dict[str, FeatureMap] = {
    "linear": lambda u: u,
    "relu": torch.relu,
    "elu1": lambda u: torch.nn.functional.elu(u) + 1,
    "uniform": lambda u: torch.ones_like(u[..., :1]) + 0 * u[..., :1],
}
SCORE_FUNCTIONS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "exp": lambda q, k, scale: (scale * q) @ k.mT,
    "gaussian": lambda q, k, scale: _squared_distances(q, k) * (-scale / 2),
    "laplace": lambda q, k, scale: _distances(q, k) * -scale,
}
LEARNED = "learned"
NORMALISATIONS = ("none", "sum")
SCALES = {"none": "1", "sqrt_d_head": "1/√d_head", "n": "1/n"}


def _squared_distances(q: Tensor, k: Tensor) -> Tensor:
    """‖q_i - k_j‖², expanded: exact to the last digits of ‖q‖² + ‖k‖²."""
    gap = q.square().sum(-1, keepdim=True) - 2 * q @ k.mT + k.square().sum(-1, keepdim=True).mT
    return gap.clamp(min=0)


def _distances(q: Tensor, k: Tensor) -> Tensor:
    """‖q_i - k_j‖ from the differences: a square root would turn the last digits of ‖q‖² into half of all digits."""
    squared = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1).sqrt(), 0)


@dataclass(frozen=True)
class AttentionKernel:
    """Which similarity, which row normalisation, which scale.

    Args:
        similarity: a feature map ("linear", "relu", "elu1", "uniform": the constant 1, or "learned", whose φ the model
            owns) or a score function ("exp": q·k, "gaussian": -‖q-k‖²/2, "laplace": -‖q-k‖, all exponentiated).
        normalisation: "none" or "sum" (a row is divided by its sum over the keys it sees).
        scale: "none", "sqrt_d_head" (1/√d_head) or "n" (1/number of context rows), multiplied into the scores.
    """

    similarity: str = "linear"
    normalisation: str = "none"
    scale: str = "none"

    def __post_init__(self) -> None:
        known = {
            "similarity": (*FEATURE_MAPS, LEARNED, *SCORE_FUNCTIONS),
            "normalisation": NORMALISATIONS,
            "scale": tuple(SCALES),
        }
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"unknown kernel {name} {getattr(self, name)!r}; known: {', '.join(values)}")

    @property
    def is_feature_map(self) -> bool:
        return self.similarity not in SCORE_FUNCTIONS

    @property
    def is_linear(self) -> bool:
        """Is one layer a cubic map of the tokens: φ the identity and no normalisation."""
        return self.similarity == "linear" and self.normalisation == "none"

    def __str__(self) -> str:
        name = "softmax" if (self.similarity, self.normalisation) == ("exp", "sum") else self.similarity
        name += ", rows normalised" if self.normalisation == "sum" and name != "softmax" else ""
        return f"{name}, scores × {SCALES[self.scale]}" if self.scale != "none" else name

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def scale_factor(self, d_head: int, n_context: int) -> float:
        """The number that multiplies the scores."""
        return 1.0 if self.scale == "none" else d_head**-0.5 if self.scale == "sqrt_d_head" else 1 / n_context

    def feature_map(self, learned: FeatureMap | None = None) -> FeatureMap:
        """φ of this kernel; `learned` is the model's own, for similarity "learned"."""
        if self.similarity == LEARNED:
            if learned is None:
                raise ValueError("the kernel's feature map is learned; pass it as `learned`")
            return learned
        return FEATURE_MAPS[self.similarity]

    def scores(
        self,
        q: Float[Tensor, "*batch query d_head"],
        k: Float[Tensor, "*batch key d_head"],
        n_context: int,
        learned: FeatureMap | None = None,
    ) -> Float[Tensor, "*batch query key"]:
        """Scores before masking, exponential and normalisation."""
        return self.scores_at(self.scale_factor(q.shape[-1], n_context), q, k, learned)

    def scores_at(
        self,
        scale: float,
        q: Float[Tensor, "*batch query d_head"],
        k: Float[Tensor, "*batch key d_head"],
        learned: FeatureMap | None = None,
    ) -> Float[Tensor, "*batch query key"]:
        """`scores` with another number in place of the kernel's own scale."""
        if self.is_feature_map:
            phi = self.feature_map(learned)
            return (scale * phi(q)) @ phi(k).mT
        return SCORE_FUNCTIONS[self.similarity](q, k, scale)

    def pattern(
        self,
        scores: Float[Tensor, "*batch query key"],
        allowed: Bool[Tensor, "*#batch query key"],
        blind_rows: bool = True,
    ) -> Float[Tensor, "*batch query key"]:
        """The weights of the values: 0 where not allowed, and a row that sees nothing is a row of zeros.

        A caller who knows that every row sees a key says `blind_rows=False`, which makes softmax cheaper.
        """
        if self.is_feature_map:
            weights = torch.where(allowed, scores, 0)
            return divide_by_total(weights, weights.sum(-1, keepdim=True)) if self.normalisation == "sum" else weights
        if self.normalisation == "sum":
            return _masked_softmax(scores, allowed, blind_rows)
        return torch.where(allowed, torch.where(allowed, scores, 0).exp(), 0)


KERNELS: dict[str, AttentionKernel] = {
    "softmax": AttentionKernel("exp", "sum"),
    "linear": AttentionKernel("linear"),
    "relu": AttentionKernel("relu"),
    "elu1": AttentionKernel("elu1", "sum"),
    "exp": AttentionKernel("exp"),
    "gaussian": AttentionKernel("gaussian", "sum"),
    "laplace": AttentionKernel("laplace", "sum"),
    "uniform": AttentionKernel("uniform", "sum"),
}
"""By name, as they are used in the literature: softmax, elu1 (Katharopoulos et al. 2020) and the smoothers gaussian,
laplace and uniform have normalised rows; linear, relu and exp have not. None states a scale."""


def register_kernel(name: str, kernel: AttentionKernel) -> None:
    """Give a kernel a name; a second name for the same kernel is fine, another kernel under a name in use is not."""
    if KERNELS.get(name, kernel) != kernel:
        raise ValueError(f"the kernel name {name!r} is taken by {KERNELS[name]}; choose another")
    KERNELS[name] = kernel


def kernel_named(name: str) -> AttentionKernel:
    """The kernel of a name; an unknown one is refused with the nearest that are known."""
    if name not in KERNELS:
        near = get_close_matches(name.lower(), KERNELS, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"unknown kernel {name!r}{hint} (known: {', '.join(KERNELS)})")
    return KERNELS[name]


def divide_by_total(
    sums: Float[Tensor, "*batch row width"], total: Float[Tensor, "*batch row 1"]
) -> Float[Tensor, "*batch row width"]:
    """Row normalisation; a row whose total is 0 (it sees nothing, or φ(q) is orthogonal to every key) stays 0."""
    return sums / torch.where(total == 0, 1, total)


def _masked_softmax(
    scores: Float[Tensor, "*batch query key"], allowed: Bool[Tensor, "*#batch query key"], blind_rows: bool
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the allowed keys.

    Where every row sees a key the mask is an upper bound on the scores: one vectorised pass, several times faster than
    filling, and unlike an additive mask it cannot meet an infinite score of the other sign.
    """
    lowest = torch.finfo(scores.dtype).min
    if blind_rows:
        return torch.where(allowed, torch.where(allowed, scores, lowest).softmax(-1), 0)
    bound = scores.new_full(allowed.shape, torch.inf).masked_fill(~allowed, lowest)
    return scores.minimum(bound).softmax(-1)
