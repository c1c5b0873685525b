"""HookedTransformer: TransformerLens's hook names and weight layout on continuous tokens.

It is a `HookedRootModule`, so `run_with_cache`, `run_with_hooks`, `ActivationCache.decompose_resid` and
`FactoredMatrix` work on it. (It is not TransformerLens's own class of that name, which was removed in TransformerLens
4.0.) Weights are never processed: no folding, no centring.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from interp.layout import BlockLayout
from models.attention import Attention, Masks
from models.components import MLP, LayerNorm, LayoutReadOut, Positions, ReadIn, ReadOut, TokensAsStream
from models.config import TransformerConfig
from models.stacked import StackedWeights

__all__ = ["Block", "HookedTransformer", "TransformerConfig"]


class Block(nn.Module):
    """z ← z + attn(ln1(z)), then z ← z + mlp(ln2(z)) if there is an MLP, then z ← ln_post(z) if `cfg.post_norm`."""

    def __init__(self, cfg: TransformerConfig, layout: BlockLayout, masks: Masks) -> None:
        super().__init__()
        self.attn = Attention(cfg, layout, masks)
        self.ln1 = _norm(cfg)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()
        self.mlp = None if cfg.attn_only else MLP(cfg)
        if self.mlp is not None:
            self.ln2 = _norm(cfg)
            self.hook_resid_mid, self.hook_mlp_out = HookPoint(), HookPoint()
        self.ln_post = LayerNorm(cfg) if cfg.post_norm else nn.Identity()

    def forward(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        z = self.hook_resid_pre(z)
        z = z + self.hook_attn_out(self.attn(self.ln1(z)))
        if self.mlp is not None:
            z = self.hook_resid_mid(z)
            z = z + self.hook_mlp_out(self.mlp(self.ln2(z)))
        return self.hook_resid_post(self.ln_post(z))


class HookedTransformer(StackedWeights):
    """A transformer on continuous tokens, in float32 until it is moved.

    The output has one row a token; `predict` gives the query rows. Without `cfg.d_out` it is sign · the layout's
    read-out block of the residual stream; with it z W_U + b_U, after a layer norm if the model has one there. With
    `cfg.post_norm` `hook_resid_post` is the normalised stream, so it is not the sum of what the layers wrote.

    Args:
        cfg: the architecture.
        layout: what the columns and rows of a prompt mean, who sees whom, and how the output is read.

    Raises:
        ValueError: the layout does not fit the config.
    """

    def __init__(self, cfg: TransformerConfig, layout: BlockLayout) -> None:
        super().__init__()
        _check_layout(cfg, layout)
        self.cfg, self.layout = cfg, layout
        self.hook_embed = HookPoint()  # [batch, token, d_model]
        self.pos_embed = None if cfg.positional_embedding_type is None else Positions(cfg)
        if self.pos_embed is not None:
            self.hook_pos_embed = HookPoint()  # [batch, token, d_model]
        masks = Masks(layout, cfg.n_heads)
        self.blocks = nn.ModuleList(Block(cfg, layout, masks) for _ in range(cfg.n_layers))
        self.embed = (
            ReadIn(cfg) if cfg.d_in is not None else TokensAsStream(self.hook_embed, self.blocks[0].hook_resid_pre)
        )
        self.ln_final = nn.Identity() if cfg.d_out is None or cfg.post_norm else _norm(cfg)
        self.unembed = LayoutReadOut(layout) if cfg.d_out is None else ReadOut(cfg.d_model, cfg.d_out)
        self._draw_weights()
        self.setup()

    @classmethod
    def from_weights(
        cls, cfg: TransformerConfig, layout: BlockLayout, weights: Mapping[str, Tensor]
    ) -> "HookedTransformer":
        """A model with the given weights, by the names of `state_dict`, in their dtype.

        Raises:
            ValueError: a weight is missing, left over, of the wrong shape, not finite, or of another dtype.
        """
        model = cls(cfg, layout)
        dtype = _check_weights(model.state_dict(), weights)
        model.to(dtype).load_state_dict(dict(weights))
        return model

    @property
    def dtype(self) -> torch.dtype:
        return self.blocks[0].attn.W_Q.dtype

    def forward(self, tokens: Tensor) -> Float[Tensor, "batch token d_out"]:
        """The output of every row of tokens [batch, token, d_in]."""
        self._check_tokens(tokens)
        z = self.hook_embed(self.embed(tokens))
        if self.pos_embed is not None:
            z = z + self.hook_pos_embed(self.pos_embed(tokens))
        for block in self.blocks:
            z = block(z)
        return self.unembed(self.ln_final(z))

    def predict(self, tokens: Tensor) -> Float[Tensor, "batch query d_out"]:
        """The output of the query rows."""
        return self(tokens)[:, -self.layout.n_query :]

    def _draw_weights(self) -> None:
        generator = torch.Generator().manual_seed(self.cfg.seed)
        std = self.cfg.d_model**-0.5 * 0.8 if self.cfg.init_std is None else self.cfg.init_std
        for name, parameter in self.named_parameters():
            if name.rpartition(".")[2].startswith("W_"):
                nn.init.normal_(parameter, std=std, generator=generator)

    def _check_tokens(self, tokens: Tensor) -> None:
        expected = self.cfg.token_width
        if tokens.ndim != 3 or tokens.shape[-1] != expected:
            blocks = f" {self.layout.widths}" if self.layout.d_model == expected else ""
            raise ValueError(
                f"the model takes tokens [batch, token, {expected}], with the columns{blocks}; "
                f"these have the shape {list(tokens.shape)}"
            )
        weights = self.blocks[0].attn.W_Q
        if tokens.dtype != weights.dtype or tokens.device != weights.device:
            raise ValueError(
                f"the tokens are {tokens.dtype} on {tokens.device}, the weights {weights.dtype} on {weights.device}; "
                "bring them together with tokens.to(...) or model.to(...)"
            )
        self.layout.n_context(tokens.shape[1])
        if self.cfg.n_ctx is not None and tokens.shape[1] > self.cfg.n_ctx:
            raise ValueError(f"the prompt has {tokens.shape[1]} rows, and the model has positions for {self.cfg.n_ctx}")


def _norm(cfg: TransformerConfig) -> nn.Module:
    return nn.Identity() if cfg.normalization_type is None else LayerNorm(cfg)


def _check_layout(cfg: TransformerConfig, layout: BlockLayout) -> None:
    if layout.d_model != cfg.layout_width:
        what = "tokens have" if cfg.layout_width != cfg.d_model else "residual stream has"
        raise ValueError(
            f"the layout describes {layout.d_model} columns {layout.widths}, and the model's {what} {cfg.layout_width}"
        )
    if cfg.d_out is not None and layout.sign != 1:
        raise ValueError(
            f"the layout's sign {layout.sign} has no effect on a model with d_out={cfg.d_out}; give sign=1"
        )
    layout.head_visibility(cfg.n_heads)


def _check_weights(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> torch.dtype:
    """Raise unless names, shapes and values are right; the dtype of the weights."""
    if missing := sorted(set(expected) - set(given)):
        raise ValueError(f"{len(missing)} of the model's weights are missing, first {missing[0]!r}")
    if extra := sorted(set(given) - set(expected)):
        raise ValueError(f"{len(extra)} of the weights given have no place in the model, first {extra[0]!r}")
    for name, standard in expected.items():
        shape, wanted = list(given[name].shape), list(standard.shape)
        if shape != wanted:
            raise ValueError(f"the weight {name!r} has the shape {shape}, and the config asks for {wanted}")
        if not given[name].isfinite().all():
            raise ValueError(f"the weight {name!r} holds NaN or infinite values")
    dtypes = {tensor.dtype for tensor in given.values()}
    if len(dtypes) != 1 or not (dtype := next(iter(dtypes))).is_floating_point:
        raise ValueError(f"the weights must share one floating dtype, and these are {sorted(map(str, dtypes))}")
    return dtype
