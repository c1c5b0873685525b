"""A model's output rebuilt from its weights, without its forward code or a hook."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from interp.ablation.attention import OwnAttention
from interp.hooks import is_transformer_lens
from interp.protocol.continuous import Continuous, positions_of

ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "gelu_new": lambda u: functional.gelu(u, approximate="tanh"),
    "gelu_pytorch_tanh": lambda u: functional.gelu(u, approximate="tanh"),
}
NORMS = (None, "LN", "LNPre", "RMS", "RMSPre")


class NotRebuilt(ValueError):
    """What in the architecture this forward pass does not know."""


def plain_forward(model: Any, tokens: Tensor) -> Float[Tensor, "batch token out"]:
    """Blocks of attention and MLP on a residual stream, from W_Q, …, b_O, norms and embeddings.

    Raises:
        NotRebuilt: an architecture beyond that, in one sentence.
    """
    foreign = model.foreign if isinstance(model, Continuous) else model
    check_known(foreign.cfg)
    own = OwnAttention.of(model if isinstance(model, Continuous) else foreign)
    with torch.no_grad():
        z = _enter(model, tokens)
        for layer, block in enumerate(foreign.blocks):
            z = z + _attention(own, layer, block.attn, _norm(foreign.cfg, getattr(block, "ln1", None), z))
            if not getattr(foreign.cfg, "attn_only", False):
                z = z + _mlp(foreign.cfg, block.mlp, _norm(foreign.cfg, block.ln2, z))
        return _leave(model, z)


def check_known(cfg: Any) -> None:
    """Refuse what the plain forward pass would get wrong."""
    heads = getattr(cfg, "n_key_value_heads", None)
    norm, positions = getattr(cfg, "normalization_type", None), getattr(cfg, "positional_embedding_type", None)
    unknown = {
        f"{norm} norms": norm not in NORMS,
        f"{positions} positions": positions not in (None, "standard"),
        "grouped keys": heads is not None and heads != cfg.n_heads,
        f"the activation {cfg.act_fn}": not getattr(cfg, "attn_only", False) and cfg.act_fn not in ACTIVATIONS,
        "capped scores": _number(cfg, "attn_scores_soft_cap") > 0,
        "capped outputs": _number(cfg, "output_logits_soft_cap") > 0,
        "experts": getattr(cfg, "num_experts", None) is not None,
    }
    flags = ("gated_mlp", "parallel_attn_mlp", "use_qk_norm", "use_normalization_before_and_after", "post_embedding_ln")
    more = ("scale_attn_by_inverse_layer_idx", "use_local_attn", "final_rms")
    unknown |= {name: bool(getattr(cfg, name, False)) for name in (*flags, *more)}
    for what, present in unknown.items():
        if present:
            raise NotRebuilt(f"its forward pass has {what}, which the plain one has not")


def _number(cfg: Any, name: str) -> float:
    return getattr(cfg, name, None) or -1.0


def _enter(model: Any, tokens: Tensor) -> Tensor:
    if isinstance(model, Continuous):
        return tokens + positions_of(model.foreign)[: tokens.shape[1]] if model.positions else tokens
    if tokens.is_floating_point():
        z = tokens if getattr(model.cfg, "d_in", None) is None else tokens @ model.embed.W_E + model.embed.b_E
    else:
        z = model.W_E[tokens]
    positions = getattr(model.cfg, "positional_embedding_type", None)
    if positions is None:
        return z
    W_pos = positions_of(model) if is_transformer_lens(model) else model.pos_embed.W_pos
    return z + W_pos[: tokens.shape[1]]


def _leave(model: Any, z: Tensor) -> Tensor:
    foreign = model.foreign if isinstance(model, Continuous) else model
    through_layout = hasattr(model, "layout") and getattr(model.cfg, "d_out", None) is None
    if through_layout:
        return z @ model.layout.reader.to(z)
    read = foreign if hasattr(foreign, "W_U") else foreign.unembed
    z = _norm(foreign.cfg, getattr(foreign, "ln_final", None), z) @ read.W_U
    return z if read.b_U is None else z + read.b_U


def _norm(cfg: Any, norm: Any, z: Tensor) -> Tensor:
    kind = getattr(cfg, "normalization_type", None)
    if kind is None:
        return z
    z = z if kind.startswith("RMS") else z - z.mean(-1, keepdim=True)
    z = z / (z.square().mean(-1, keepdim=True) + cfg.eps).sqrt()
    w, b = getattr(norm, "w", None), getattr(norm, "b", None)
    z = z if w is None else z * w
    return z if b is None else z + b


def _attention(own: OwnAttention, layer: int, attn: Any, z: Tensor) -> Tensor:
    q, k, v = (torch.einsum("btd,hde->bthe", z, getattr(attn, f"W_{name}")) for name in "QKV")
    q, k, v = (
        each if bias is None else each + bias
        for each, bias in zip((q, k, v), (getattr(attn, f"b_{name}", None) for name in "QKV"), strict=True)
    )
    pattern = own.pattern(own.kernel, layer, q, k)
    out = torch.einsum("bhqk,bkhe,hed->bqd", pattern, v, attn.W_O)
    bias = getattr(attn, "b_O", None)
    return out if bias is None else out + bias


def _mlp(cfg: Any, mlp: Any, z: Tensor) -> Tensor:
    hidden = ACTIVATIONS[cfg.act_fn](z @ mlp.W_in + mlp.b_in)
    return hidden @ mlp.W_out + mlp.b_out
