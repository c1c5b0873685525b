"""What a probe looks for: quantities that the prompt defines, one vector a prompt or one a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.gaussian_process import posterior
from interp.kernel_rows import KernelRows, sees_the_past
from interp.layout import BlockLayout

PINV_RTOL = 1e-10
WELL_CONDITIONED = 1e-3  # smallest over largest diagonal of the Cholesky factor at which it is trusted


@dataclass(frozen=True)
class Blocks:
    """A, B, C of a batch of prompts (MATH §1) in float64, and the regularisation λ that its solutions use.

    `covariance` is that of the functions, for the targets of kernel ridge regression; `causal` says that a context row
    sees only the rows up to itself, which those targets mind (`KernelRows`).
    """

    A: Float[Tensor, "batch context x"]
    B: Float[Tensor, "batch query x"]
    C: Float[Tensor, "batch context y"]
    ridge: float = 0.0
    covariance: Covariance | None = None
    causal: bool = False

    @classmethod
    def of(
        cls,
        tokens: Float[Tensor, "batch token d_in"],
        layout: BlockLayout,
        ridge: float = 0.0,
        covariance: Covariance | None = None,
    ) -> "Blocks":
        """The blocks of the layout's coordinates; inputs and labels of alternating prompts are brought together."""
        n = layout.n_context(tokens.shape[1])
        rows = layout.coordinates(tokens.double())
        x, y = rows[..., layout.slices[input_block(layout)]], rows[..., layout.slices[layout.readout]]
        A, C = (x[:, :n:2], y[:, 1:n:2]) if alternates(tokens, layout) else (x[:, :n], y[:, :n])
        return cls(A, x[:, n:], C, ridge, covariance, sees_the_past(layout))

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

    @property
    def kernel_rows(self) -> KernelRows:
        """The system (K + λI) α = C of the covariance."""
        assert self.covariance is not None  # check_target has refused that
        return KernelRows(self.A, self.C, self.covariance, self.ridge, self.causal)

    @property
    def kernel_prediction(self) -> Float[Tensor, "batch query y"]:
        """Kernel ridge regression at the queries."""
        assert self.covariance is not None  # check_target has refused that
        return posterior(self.covariance, self.ridge, self.A, self.C, self.B).mean


def alternates(tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout) -> bool:
    """Do inputs and labels sit in tokens of their own, (x, 0), (0, y), (x, 0), …, in every prompt given?"""
    n = layout.n_context(tokens.shape[1])
    if n % 2 or "x" not in layout.columns:
        return False
    rows = layout.coordinates(tokens[:, :n].double())
    labels, inputs = rows[:, ::2, layout.slices[layout.readout]], rows[:, 1::2, layout.slices["x"]]
    return not bool(labels.any()) and not bool(inputs.any())


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


@dataclass(frozen=True)
class Target:
    """A quantity by name: how it follows from the blocks, what it means, which rows have one of their own.

    Args:
        of: Blocks to [batch, row, column].
        role: "context" or "query" where each row of that role has a value; None for one a prompt.
        kernel: does it need the covariance.      penalised: does it need λ > 0.
    """

    of: Callable[[Blocks], Float[Tensor, "batch row column"]]
    meaning: str
    role: str | None = None
    kernel: bool = False
    penalised: bool = False


_TARGETS: dict[str, Target] = {
    "w": Target(lambda blocks: blocks.w.flatten(1)[:, None], "weights (AᵀA + λI)⁻¹AᵀC"),
    "xty": Target(lambda blocks: (blocks.A.mT @ blocks.C).flatten(1)[:, None], "AᵀC"),
    "hessian": Target(lambda blocks: (blocks.A.mT @ blocks.A).flatten(1)[:, None], "vec(AᵀA)"),
    "prediction": Target(lambda blocks: blocks.B @ blocks.w, "least-squares predictions B w", "query"),
    "dual": Target(lambda blocks: blocks.dual, "dual coefficients (AAᵀ + λI)⁻¹C", "context"),
    "label": Target(lambda blocks: blocks.C, "labels C", "context"),
    "row-sums": Target(lambda blocks: blocks.kernel_rows.row_sums, "row sums D = K1 of the kernel", "context", True),
    "kernel-dual": Target(
        lambda blocks: blocks.kernel_rows.dual, "dual coefficients (K + λI)⁻¹C of the kernel", "context", True, True
    ),
    "kernel-prediction": Target(
        lambda blocks: blocks.kernel_prediction, "kernel ridge regression at the queries", "query", True, True
    ),
}
TARGETS = {name: target.of for name, target in _TARGETS.items()}
MEANING = {name: target.meaning for name, target in _TARGETS.items()}
BY_ROW = {name: target.role for name, target in _TARGETS.items() if target.role}
"""Targets with one vector a row of that role."""


def row_role(target: str, alternating: bool) -> str | None:
    """The rows that hold a target's values: in alternating prompts those of context points are the label tokens."""
    role = BY_ROW.get(target)
    return "label" if alternating and role == "context" else role


def check_target(
    target: str, layout: BlockLayout | None, tokens: Any, ridge: float, covariance: Covariance | None = None
) -> BlockLayout:
    """The layout, if the target is known and the prompts define it.

    Raises:
        ValueError: tokens that are no tensor, an unknown target, no layout, tokens of another width, no block of
            inputs, a negative λ, a kernel's target without covariance or with λ = 0 where it solves.
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
    _check_kernel(target, ridge, covariance)
    input_block(layout)
    return layout


def _check_kernel(target: str, ridge: float, covariance: Covariance | None) -> None:
    if _TARGETS[target].kernel and not isinstance(covariance, Covariance):
        raise ValueError(
            f"the target {target!r} is one of kernel ridge regression and needs its covariance; give "
            f"covariance=Covariance('rbf', 0.3), got {covariance!r}"
        )
    if _TARGETS[target].penalised and not ridge > 0:
        raise ValueError(f"the target {target!r} needs λ > 0, the variance of the noise: give ridge=…, got {ridge}")


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
