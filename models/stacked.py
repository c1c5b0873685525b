"""The weights of all layers side by side, by TransformerLens's names."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import FactoredMatrix

from models.strict import StrictHookedModule


class StackedWeights(StrictHookedModule):
    """What `ActivationCache` and users of TransformerLens ask of a model: W_Q … W_out, QK, OV, accumulated_bias."""

    blocks: Any

    def _stack(self, part: str, name: str) -> Tensor:
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self._stack("attn", "W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self._stack("attn", "W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self._stack("attn", "W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        return self._stack("attn", "W_O")

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        return self._stack("mlp", "W_in")

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        return self._stack("mlp", "W_out")

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_Kᵀ, [layer, head, d_model, d_model]."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O, [layer, head, d_model, d_model]."""
        return FactoredMatrix(self.W_V, self.W_O)

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """The sum of the biases b_O and b_out of the blocks before `layer`; with `mlp_input` also its own b_O."""
        attention = list(self.blocks[: layer + mlp_input])
        total = torch.zeros_like(self.blocks[0].attn.W_O[0, 0])
        for bias in (block.attn.b_O for block in attention):
            total = total if bias is None else total + bias
        if include_mlp_biases:
            for block in self.blocks[:layer]:
                total = total if block.mlp is None else total + block.mlp.b_out
        return total
