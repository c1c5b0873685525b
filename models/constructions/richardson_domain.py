"""Which prompts a Richardson network is made for, its tokens, and the ranges of what it computes on them."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.layout import BlockLayout
from models.constructions.construction import check_positive, join
from models.prompts.value import Prompts

FILLED = ("x", "y", "norm", "constant", "bos")


@dataclass(frozen=True)
class Domain:
    """At most n context points with |y| ≤ y_max, and row sums of the kernel (of queries, too) of at most d_max.

    λ is the ridge penalty, h the bandwidth of k(x, x') = exp(−‖x − x'‖²/2h²). d_max is n unless a smaller one is known.
    """

    n: int
    lam: float
    bandwidth: float
    y_max: float
    d_max: float

    def __post_init__(self) -> None:
        given = {"λ": self.lam, "bandwidth": self.bandwidth, "y_max": self.y_max, "d_max": self.d_max}
        check_positive("richardson", n=self.n, **given)

    @property
    def f_max(self) -> float:
        """|f_k(x)| ≤ y_max √(n/λ) for every Richardson iterate f_k with P = D + λI and 0 < ω ≤ 1, at every x.

        α_k = B_k y with 0 ≼ B_k ≼ (K + λI)⁻¹, so ‖f_k‖² = yᵀ B_k K B_k y ≤ ‖y‖²/λ in the space of the kernel.
        """
        return self.y_max * math.sqrt(self.n / self.lam)

    @property
    def alpha_max(self) -> float:
        """|α_k| ≤ (y_max + f_max)/λ, as α ← (1 − ωp) α + ωp (y − f)/λ averages."""
        return (self.y_max + self.f_max) / self.lam

    def check(self, prompts: Prompts) -> None:
        """Refuse prompts outside, with the size that would do."""
        n, largest = prompts.A.shape[1], prompts.C.abs().amax().item()
        if prompts.d_out != 1:
            raise ValueError(f"richardson: takes one column of labels, and these prompts have {prompts.d_out}")
        if n > self.n:
            raise ValueError(
                f"richardson: {n} context points, and the network is sized for {self.n}; build it for n={n}"
            )
        if not largest <= self.y_max:
            raise ValueError(
                f"richardson: labels reach {largest:.4g}, and the network is sized for |y| ≤ {self.y_max:g}; "
                f"build it for y_max={_rounded_up(largest)} or clip the labels"
            )
        if self.d_max < n:
            x = torch.cat([prompts.A, prompts.B], dim=1)
            sums = Covariance("rbf", self.bandwidth)(x, prompts.A).sum(-1).amax().item()
            if not sums <= self.d_max:
                raise ValueError(
                    f"richardson: row sums of the kernel reach {sums:.4g}, and the network is sized for "
                    f"{self.d_max:g}; build it for d_max={_rounded_up(sums)}"
                )


def _rounded_up(value: float) -> float:
    return math.ceil(value * 100) / 100 if math.isfinite(value) else value


@dataclass(frozen=True)
class Embedding:
    """Prompts as tokens: BOS, the context points, the queries.

    Filled are x, y (0 in queries), norm = ‖x‖², constant = 1 and bos (1 in the first row alone, where x, y and norm
    are 0). The other columns start at 0. BOS counts as a context row of the layout.
    """

    domain: Domain

    def __call__(self, prompts: Prompts, layout: BlockLayout) -> Float[Tensor, "batch token d_model"]:
        self.domain.check(prompts)
        x, y = prompts.tokens[..., :-1], prompts.tokens[..., -1:]
        ones = torch.ones_like(y)
        parts = {"x": x, "y": y, "norm": x.square().sum(-1, keepdim=True), "constant": ones, "bos": 0 * ones}
        rows = {name: torch.cat([torch.zeros_like(part[:, :1]), part], dim=1) for name, part in parts.items()}
        rows["constant"], rows["bos"] = torch.ones_like(rows["bos"]), torch.zeros_like(rows["bos"])
        rows["bos"][:, 0] = 1
        blank = {name: torch.zeros_like(rows["y"]) for name in layout.columns if name not in FILLED}
        return join(rows | blank, prompts, layout)
