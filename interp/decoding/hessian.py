"""The inverse Hessian that a model uses, from how its implicit weights move with the labels (MATH §5).

Where w_l = s_l(G) AᵀC, G = AᵀA, the derivative of w_l by the labels is s_l(G) Aᵀ: the same [d, n] for every output,
which no other output's labels disturb. So s_l = ∂w_l/∂C · (A⁺)ᵀ on the row space Π of A, and nothing is known outside
it. (A model whose scores are divided by n has w = s(G/n) AᵀC/n; that 1/n is part of what is called s_l here.) With G's
eigenvectors v_i and r_l = 1 − g s_l, the step w_{l+1} = w_l − H_l⁻¹ (G w_l − AᵀC) has H_l⁻¹ = (s_{l+1} − s_l)/r_l.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROW_SPACE = 1e-10  # relative size of a singular value of A below which its direction is outside the row space
DETERMINED = 1e-3  # |r_l| above which H_l⁻¹ is read off


@dataclass(frozen=True, eq=False)
class RowSpace:
    """A = U diag(σ) Vᵀ [prompt, …]; where σ is 0 up to rounding `kept` is False."""

    U: Tensor
    sigma: Tensor
    V: Tensor
    kept: Tensor

    @classmethod
    def of(cls, A: Float[Tensor, "prompt n d"]) -> "RowSpace":
        U, sigma, Vh = torch.linalg.svd(A, full_matrices=False)
        return cls(U, sigma, Vh.mT, sigma > ROW_SPACE * sigma[:, :1])

    @property
    def g(self) -> Float[Tensor, "prompt rank"]:
        """The eigenvalues of G, descending; NaN outside the row space."""
        return torch.where(self.kept, self.sigma.square(), torch.nan)

    @property
    def projection(self) -> Float[Tensor, "prompt d d"]:
        """Π."""
        return (self.V * self.kept[:, None]) @ self.V.mT

    @property
    def inverse(self) -> Float[Tensor, "prompt d n"]:
        """A⁺."""
        scale = torch.where(self.kept, 1 / self.sigma, 0)
        return (self.V * scale[:, None]) @ self.U.mT


@dataclass(frozen=True, eq=False)
class InverseHessian:
    """s_l by depth and prompt.

    Args:
        s: the estimate of G⁺ at depth 0, 1, …, L [depth, prompt, d, d]; 0 outside the row space.
        relative_error: ‖s_l G − Π‖_F / ‖Π‖_F [depth, prompt].
        remainder: share of ∂w_l/∂C, in norm, that is not one s_l Aᵀ for every output [depth, prompt].
        g: the eigenvalues of G, descending, NaN outside the row space [prompt, rank].
        spectrum: v_iᵀ s_l v_i, to be compared with 1/g [depth, prompt, rank].
        off_diagonal: share of s_l, in norm, that is no function of G: not diagonal in its eigenvectors [depth, prompt].
        steps: the eigenvalues of H_l⁻¹ [layer, prompt, rank]; NaN where |r_l| ≤ 1e-3, and so undetermined, or outside
            the row space.
        undetermined: share of the row space, by layer, in which H_l⁻¹ is undetermined [layer].
    """

    s: Tensor
    relative_error: Tensor
    remainder: Tensor
    g: Tensor
    spectrum: Tensor
    off_diagonal: Tensor
    steps: Tensor
    undetermined: Tensor

    @property
    def r(self) -> Float[Tensor, "depth prompt rank"]:
        """r_l = 1 − g s_l: what is left of the error in each eigen-direction."""
        return 1 - self.g * self.spectrum


def inverse_hessian(mixed: Float[Tensor, "depth prompt d out n out"], A: Float[Tensor, "prompt n d"]) -> InverseHessian:
    """s_l and what follows from it, of ∂w_l/∂C."""
    space = RowSpace.of(A)
    own = mixed.diagonal(dim1=3, dim2=5).mean(-1)  # from label k to output k, over k [depth, prompt, d, n]
    s = space.projection @ own @ space.inverse.mT
    G, projection = A.mT @ A, space.projection
    error = (s @ G - projection).flatten(2).norm(dim=2) / projection.flatten(1).norm(dim=1)
    spectrum = torch.where(space.kept, (space.V.mT @ s @ space.V).diagonal(dim1=-2, dim2=-1), torch.nan)
    steps = _steps(spectrum, space.g)
    hidden = (steps.isnan() & space.kept).sum(dim=(1, 2)) / space.kept.sum()
    return InverseHessian(
        s, error, _remainder(mixed, s @ A.mT), space.g, spectrum, _off_diagonal(s, spectrum), steps, hidden
    )


def _steps(spectrum: Float[Tensor, "depth prompt rank"], g: Float[Tensor, "prompt rank"]) -> Tensor:
    r = 1 - g * spectrum[:-1]
    return torch.where(r.abs() > DETERMINED, (spectrum[1:] - spectrum[:-1]) / r, torch.nan)


def _remainder(mixed: Tensor, form: Float[Tensor, "depth prompt d n"]) -> Float[Tensor, "depth prompt"]:
    """‖∂w/∂C − I ⊗ s Aᵀ‖ / ‖∂w/∂C‖."""
    same = torch.eye(mixed.shape[3]).to(mixed)
    gap = mixed - torch.einsum("lpdn,jk->lpdjnk", form, same)
    return _share(gap.flatten(2).norm(dim=2), mixed.flatten(2).norm(dim=2))


def _off_diagonal(s: Tensor, spectrum: Tensor) -> Float[Tensor, "depth prompt"]:
    whole = s.flatten(2).square().sum(2)
    return _share((whole - spectrum.nan_to_num().square().sum(2)).clamp(min=0).sqrt(), whole.sqrt())


def _share(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(part == 0, 0, part / whole).nan_to_num(nan=torch.inf)
