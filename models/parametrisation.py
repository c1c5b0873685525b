"""What training moves: the matrices Q and V of every head, whole or in factors, and one scale a layer."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.gram import LayerMatrices
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class HeadSizes:
    """Sizes of a linear-attention stack.

    Args:
        n_layers, n_heads, d_model: of the stack.
        qk_rank, value_rank: largest rank of Q and of V; None for d_model.
    """

    n_layers: int
    n_heads: int
    d_model: int
    qk_rank: int | None = None
    value_rank: int | None = None

    @property
    def d_head(self) -> int:
        return max(self.qk_rank or self.d_model, self.value_rank or self.d_model)


class GramParameters(nn.Module):
    """Layer l is Q_h = g_l Q̃_h, V_h = Ṽ_h, with one positive scale g_l = exp(log_gain_l) a layer.

    A matrix of limited rank r is moved as its two factors [d_model, r] and [r, d_model], any other as a whole. The
    scale is redundant (Q̃ could hold it), but lets a layer of large matrices be reached with the steps of a layer of
    small ones. Unless `gain` is given, all scales start at 1 and are trained: no knowledge of the solution enters.

    Args:
        sizes: of the stack.
        init_std: standard deviation of the initial entries of Q̃ and Ṽ.
        seed: of the initial entries.
        gain: layer l's scale is gain^l and stays; Q̃ and Ṽ start smaller by gain^(-l/2). None: trained, from 1.
    """

    def __init__(self, sizes: HeadSizes, init_std: float, seed: int, gain: float | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        generator = torch.Generator().manual_seed(seed)
        layers = torch.arange(sizes.n_layers)
        log_gain = torch.zeros(sizes.n_layers) if gain is None else layers * torch.tensor(gain).log()
        std = init_std * (-log_gain / 2).exp()[:, None, None, None]
        self.Q = _matrix(sizes, sizes.qk_rank, std, generator)
        self.V = _matrix(sizes, sizes.value_rank, std, generator)
        self.log_gain = nn.Parameter(log_gain, requires_grad=gain is None)

    def layers(self) -> list[LayerMatrices]:
        """The matrices of each layer, differentiable."""
        gains = self.log_gain.exp()
        return [LayerMatrices(gain * Q, V) for gain, Q, V in zip(gains, self.Q(), self.V(), strict=True)]

    def to_model(self, layout: BlockLayout) -> HookedTransformer:
        """The same function as a `HookedTransformer`, kernel linear without a scale.

        Q = W_Q W_Kᵀ and V = W_V W_O are factored by their singular value decomposition, both factors alike; the columns
        of W_Q, W_K, W_V and W_O beyond the largest rank allowed are left out, those beyond a matrix's own rank are 0.
        """
        sizes = self.sizes
        config = TransformerConfig(sizes.n_layers, sizes.n_heads, sizes.d_model, sizes.d_head)
        weights: dict[str, Tensor] = {}
        for index, layer in enumerate(self.layers()):
            query, key = balanced_factors(layer.Q, sizes.qk_rank, sizes.d_head)
            value, output = balanced_factors(layer.V, sizes.value_rank, sizes.d_head)
            factors = {"W_Q": query, "W_K": key.mT, "W_V": value, "W_O": output}
            weights |= {f"blocks.{index}.attn.{name}": factor.contiguous() for name, factor in factors.items()}
        return HookedTransformer.from_weights(config, layout, weights)


class WholeMatrix(nn.Module):
    """Matrices [layer, head, d_model, d_model] that are moved entry by entry."""

    def __init__(self, initial: Float[Tensor, "layer head d_model d_model"]) -> None:
        super().__init__()
        self.matrix = nn.Parameter(initial)

    def forward(self) -> Float[Tensor, "layer head d_model d_model"]:
        return self.matrix


class FactoredParameter(nn.Module):
    """Matrices [layer, head, d_model, d_model] of limited rank, moved as their factors."""

    def __init__(
        self, left: Float[Tensor, "layer head d_model rank"], right: Float[Tensor, "layer head rank d_model"]
    ) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(left), nn.Parameter(right)

    def forward(self) -> Float[Tensor, "layer head d_model d_model"]:
        return self.left @ self.right


def _matrix(sizes: HeadSizes, rank: int | None, std: Tensor, generator: torch.Generator) -> nn.Module:
    """Normal entries of the given standard deviation; of a product, as large in the mean square."""
    shape = (sizes.n_layers, sizes.n_heads, sizes.d_model)
    if rank is None:
        return WholeMatrix(std * torch.randn(*shape, sizes.d_model, generator=generator))
    factors = (torch.randn(*shape, rank, generator=generator) for _ in range(2))
    left, right = ((std / rank**0.5).sqrt() * factor for factor in factors)
    return FactoredParameter(left, right.mT.contiguous())


@torch.no_grad()
def balanced_factors(
    matrix: Float[Tensor, "head d_model d_model"], rank: int | None, d_head: int
) -> tuple[Float[Tensor, "head d_model d_head"], Float[Tensor, "head d_head d_model"]]:
    """L, R with matrix = L R and LᵀL = R Rᵀ, computed in float64 on the CPU, in the matrix's dtype.

    Singular values beyond `rank`, which are rounding, are dropped; both factors are filled with 0 up to d_head.
    """
    left, sigma, right = torch.linalg.svd(matrix.detach().cpu().double())
    left, root, right = left[..., :rank], sigma[..., :rank].sqrt(), right[..., :rank, :]
    missing = d_head - root.shape[-1]
    left = functional.pad(left * root[..., None, :], (0, missing))
    right = functional.pad(root[..., :, None] * right, (0, 0, 0, missing))
    return left.to(matrix.dtype), right.to(matrix.dtype)
