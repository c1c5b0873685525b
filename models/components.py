"""The parts of a block that are not attention, and the read-in and read-out."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens.hook_points import HookPoint

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.strict import is_hooked

_ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
}


def weight(*shape: int) -> nn.Parameter:
    """A parameter whose values `HookedTransformer` draws."""
    return nn.Parameter(torch.empty(*shape))


def bias(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


class LayerNorm(nn.Module):
    """(z - mean)/√(variance + eps) · w + b, with TransformerLens's hook points for the scale and the quotient."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.eps = cfg.eps
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = bias(cfg.d_model)
        self.hook_scale = HookPoint()  # [batch, token, 1]
        self.hook_normalized = HookPoint()  # [batch, token, d_model]

    def forward(self, z: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if not is_hooked(self.hook_scale, self.hook_normalized):
            return functional.layer_norm(z, self.w.shape, self.w, self.b, self.eps)
        z = z - z.mean(-1, keepdim=True)
        scale = self.hook_scale((z.square().mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(z / scale) * self.w + self.b


class MLP(nn.Module):
    """act(z W_in + b_in) W_out + b_out."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None  # the config has checked it
        self.activation = _ACTIVATIONS[cfg.act_fn]
        self.W_in, self.b_in = weight(cfg.d_model, cfg.d_mlp), bias(cfg.d_mlp)
        self.W_out, self.b_out = weight(cfg.d_mlp, cfg.d_model), bias(cfg.d_model)
        self.hook_pre = HookPoint()  # [batch, token, d_mlp]
        self.hook_post = HookPoint()  # [batch, token, d_mlp]

    def forward(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        pre = self.hook_pre(functional.linear(z, self.W_in.T, self.b_in))
        return functional.linear(self.hook_post(self.activation(pre)), self.W_out.T, self.b_out)


class ReadIn(nn.Module):
    """Continuous tokens into the residual stream: u W_E + b_E."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.W_E, self.b_E = weight(cfg.token_width, cfg.d_model), bias(cfg.d_model)

    def forward(self, tokens: Float[Tensor, "batch token d_in"]) -> Float[Tensor, "batch token d_model"]:
        return functional.linear(tokens, self.W_E.T, self.b_E)


class TokensAsStream(nn.Module):
    """The tokens are the residual stream: copied if a hook could write into it in place, and so into the prompt."""

    def __init__(self, *points: HookPoint) -> None:
        super().__init__()
        self.points = points  # a tuple: the hook points belong to other modules

    def forward(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        return tokens.clone() if is_hooked(*self.points) else tokens


class Positions(nn.Module):
    """One learned vector a row, in the order of the rows."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        assert cfg.n_ctx is not None  # the config has checked it
        self.W_pos = weight(cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Float[Tensor, "batch token d_in"]) -> Float[Tensor, "batch token d_model"]:
        batch, n_tokens, _ = tokens.shape
        return self.W_pos[:n_tokens].expand(batch, -1, -1)


class ReadOut(nn.Module):
    """The output of every row: z W_U + b_U."""

    def __init__(self, d_model: int, d_out: int) -> None:
        super().__init__()
        self.W_U, self.b_U = weight(d_model, d_out), bias(d_out)

    def forward(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_out"]:
        return functional.linear(z, self.W_U.T, self.b_U)


class LayoutReadOut(nn.Module):
    """The output of every row, read through the layout: sign · read-out block.

    The matrix is kept in float64 and cast when the dtype or device of the stream changes, so that a model moved to
    float32 and back reads out as before. Where it only cuts out consecutive columns they are cut out.
    """

    def __init__(self, layout: BlockLayout) -> None:
        super().__init__()
        self.sign, self.exact = layout.sign, layout.reader
        self.matrix, self.columns = self.exact, _consecutive_columns(self.exact / self.sign)

    def forward(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_out"]:
        if self.columns is not None:
            return self.sign * z[..., self.columns]
        if self.matrix.dtype != z.dtype or self.matrix.device != z.device:
            self.matrix = self.exact.to(z)
        return z @ self.matrix


def _consecutive_columns(matrix: Float[Tensor, "d_model out"]) -> slice | None:
    """The columns a matrix cuts out: `columns` with z[..., columns] = z @ matrix, or None."""
    start = int(matrix[:, 0].argmax())
    columns = slice(start, start + matrix.shape[1])
    return columns if torch.equal(torch.eye(len(matrix)).to(matrix)[:, columns], matrix) else None
