"""What a probe looks for: quantities that the prompt defines, one vector a prompt or one a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout

PINV_RTOL = 1e-10
WELL_CONDITIONED = 1e-3  # smallest over largest diagonal of the Cholesky factor at which it is trusted
BY_ROW = {"dual": "context", "prediction": "query"}  # targets with one vector a row of that role


@dataclass(frozen=True)
class Blocks:
    """A, B, C of a batch of prompts (MATH §1) in float64, and the regularisation λ that its solutions use."""

    A: Float[Tensor, "batch context x"]
    B: Float[Tensor, "batch query x"]
    C: Float[Tensor, "batch context y"]
    ridge: float = 0.0

    @classmethod
    def of(cls, tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout, ridge: float = 0.0) -> "Blocks":
        """The blocks of the layout's coordinates."""
        n = layout.n_context(tokens.shape[1])
        rows = layout.coordinates(tokens.double())
        x, y = layout.slices[input_block(layout)], layout.slices[layout.readout]
        return cls(rows[:, :n, x], rows[:, n:, x], rows[:, :n, y], ridge)

    @property
    def w(self) -> Float[Tensor, "batch x y"]:
        """(AᵀA + λI)⁻¹ AᵀC; A⁺C for λ = 0, the least-norm solution of least squares."""
        if self.ridge == 0:
            return least_squares(self.A, self.C)
        eye = self.ridge * torch.eye(self.A.shape[2]).to(self.A)
        return torch.linalg.solve(self.A.mT @ self.A + eye, self.A.mT @ self.C)

    @property
    def dual(self) -> Float[Tensor, "batch context y"]:
        """(AAᵀ + λI)⁻¹ C; (AAᵀ)⁺ C for λ = 0, the α of least norm with Aᵀα = A⁺C."""
        if self.ridge == 0:
            return torch.linalg.pinv(self.A, rtol=PINV_RTOL).mT @ self.w
        return (self.C - self.A @ self.w) / self.ridge


def least_squares(
    A: Float[Tensor, "batch context x"], C: Float[Tensor, "batch context y"]
) -> Float[Tensor, "batch x y"]:
    """A⁺C: by the Cholesky factor of AᵀA, refined once, where all of the batch is well conditioned; else by the SVD."""
    factor, failed = torch.linalg.cholesky_ex(A.mT @ A)
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    if bool(failed.any()) or bool((diagonal.amin(-1) < WELL_CONDITIONED * diagonal.amax(-1)).any()):
        return torch.linalg.pinv(A, rtol=PINV_RTOL) @ C
    w = torch.cholesky_solve(A.mT @ C, factor)
    return w + torch.cholesky_solve(A.mT @ (C - A @ w), factor)


TARGETS: dict[str, Callable[[Blocks], Float[Tensor, "batch row column"]]] = {
    "w": lambda blocks: blocks.w.flatten(1)[:, None],
    "xty": lambda blocks: (blocks.A.mT @ blocks.C).flatten(1)[:, None],
    "hessian": lambda blocks: (blocks.A.mT @ blocks.A).flatten(1)[:, None],
    "prediction": lambda blocks: blocks.B @ blocks.w,
    "dual": lambda blocks: blocks.dual,
}
MEANING = {
    "w": "weights (AᵀA + λI)⁻¹AᵀC",
    "xty": "AᵀC",
    "hessian": "vec(AᵀA)",
    "prediction": "least-squares predictions B w",
    "dual": "dual coefficients (AAᵀ + λI)⁻¹C",
}


def check_target(target: str, layout: BlockLayout | None, tokens: Any, ridge: float) -> BlockLayout:
    """The layout, if the target is known and the prompts define it.

    Raises:
        ValueError: tokens that are no tensor, an unknown target, no layout, tokens of another width, no block of
            inputs, a negative λ.
    """
    if not isinstance(tokens, torch.Tensor):
        raise ValueError(
            f"prompts must be tokens [prompt, token, d_in] or a value with such .tokens, got {type(tokens).__name__}"
        )
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
    if layout is None:
        raise ValueError(
            f"the prompts do not define the target {target!r}: the model has no layout that says which columns are "
            "inputs and labels; give layout=BlockLayout.standard(x=…, y=…, n_query=…)"
        )
    if tokens.shape[-1] != layout.d_model:
        raise ValueError(
            f"the prompts do not define the target {target!r}: they have {tokens.shape[-1]} columns and the layout "
            f"{layout.d_model} {layout.widths}; give the layout of the tokens"
        )
    if not 0 <= ridge < float("inf"):
        raise ValueError(f"ridge={ridge} must be 0 or a positive, finite number")
    input_block(layout)
    return layout


def input_block(layout: BlockLayout) -> str:
    """The name of the inputs' block: "x", or the only block beside the read-out.

    Raises:
        ValueError: there is neither.
    """
    others = [name for name in layout.columns if name != layout.readout]
    if "x" in others:
        return "x"
    if len(others) != 1:
        raise ValueError(
            f"the prompts define no target: none of the blocks {layout.widths} is named x, and {len(others)} stand "
            f"beside the read-out {layout.readout!r}; name the inputs x"
        )
    return others[0]
