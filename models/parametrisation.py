"""What training moves: full matrices Q and V a head, and one scale a layer; and the plain model they amount to."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.gram import LayerMatrices
from models.transformer import HookedTransformer


class GramParameters(nn.Module):
    """Layer l is Q_h = g_l Q̃_h, V_h = Ṽ_h, with one positive scale g_l = exp(log_gain_l) a layer.

    The scale is redundant (Q̃ could hold it), but lets a layer of large matrices be reached with the steps of a layer of
    small ones. Unless `gain` is given, all scales start at 1 and are trained: no knowledge of the solution enters.

    Args:
        n_layers, n_heads, d_model: sizes.
        init_std: standard deviation of the initial entries of Q̃ and Ṽ.
        seed: of the initial entries.
        gain: layer l's scale is gain^l and stays; Q̃ and Ṽ start smaller by gain^(-l/2). None: trained, from 1.
    """

    def __init__(
        self, n_layers: int, n_heads: int, d_model: int, init_std: float, seed: int, gain: float | None = None
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        shape = (n_layers, n_heads, d_model, d_model)
        log_gain = torch.zeros(n_layers) if gain is None else torch.arange(n_layers) * torch.tensor(gain).log()
        shrink = (-log_gain / 2).exp()[:, None, None, None]
        self.Q = nn.Parameter(init_std * shrink * torch.randn(shape, generator=generator))
        self.V = nn.Parameter(init_std * shrink * torch.randn(shape, generator=generator))
        self.log_gain = nn.Parameter(log_gain, requires_grad=gain is None)

    def layers(self) -> list[LayerMatrices]:
        """The matrices of each layer, differentiable."""
        gains = self.log_gain.exp()
        return [LayerMatrices(gain * Q, V) for gain, Q, V in zip(gains, self.Q, self.V, strict=True)]

    def to_model(self, layout: BlockLayout) -> HookedTransformer:
        """The same function as a `HookedTransformer` with d_head = d_model, kernel linear without a scale.

        Q = W_Q W_Kᵀ and V = W_V W_O are factored by their singular value decomposition, both factors alike.
        """
        n_layers, n_heads, d_model, _ = self.Q.shape
        config = TransformerConfig(n_layers=n_layers, n_heads=n_heads, d_model=d_model, d_head=d_model)
        weights: dict[str, Tensor] = {}
        for index, layer in enumerate(self.layers()):
            query, key = balanced_factors(layer.Q)
            value, output = balanced_factors(layer.V)
            factors = {"W_Q": query, "W_K": key.mT, "W_V": value, "W_O": output}
            weights |= {f"blocks.{index}.attn.{name}": factor.contiguous() for name, factor in factors.items()}
        return HookedTransformer.from_weights(config, layout, weights)


@torch.no_grad()
def balanced_factors(
    matrix: Float[Tensor, "head d_model d_model"],
) -> tuple[Float[Tensor, "head d_model d_model"], Float[Tensor, "head d_model d_model"]]:
    """L, R with matrix = L R and LᵀL = R Rᵀ, computed in float64 on the CPU, in the matrix's dtype."""
    left, sigma, right = torch.linalg.svd(matrix.detach().cpu().double())
    root = sigma.sqrt()
    return (left * root[..., None, :]).to(matrix.dtype), (root[..., :, None] * right).to(matrix.dtype)
