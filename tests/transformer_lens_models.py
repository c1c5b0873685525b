"""TransformerLens's own models, tiny, by the classes that the installed version has, and their forward pass by hand."""

import warnings
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

FOUR = int(version("transformer-lens").partition(".")[0]) >= 4
ONLY_FOUR = "no bridge of transformer-lens 3 is taken for interventions (tested there); this runs on version 4"
SIZES = {"n_layers": 2, "d_model": 6, "n_heads": 2, "d_head": 3, "n_ctx": 12, "d_vocab": 20, "seed": 0}
MLP = {"d_mlp": 8, "act_fn": "gelu"}
BARE = {"normalization_type": None, "attn_only": True, "act_fn": "gelu", "d_mlp": 8}


def own_model(**settings: Any) -> Any:
    """HookedTransformer of version 3, the native bridge of version 4."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformer_lens

        settings = {**SIZES, **MLP, **settings}
        if not FOUR:
            model = transformer_lens.HookedTransformer(transformer_lens.HookedTransformerConfig(**settings))
            return shaken(model)
    return shaken(native_bridge(**settings))


def native_bridge(**settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.config import TransformerBridgeConfig
        from transformer_lens.model_bridge import TransformerBridge

        return TransformerBridge.boot_native(TransformerBridgeConfig(**{**SIZES, **MLP, **settings}))


def gpt2_bridge(dropout: float = 0.0) -> Any:
    """A bridge around a GPT-2 built from a config; nothing is downloaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformer_lens.model_bridge.sources import build_bridge_from_module
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"vocab_size": 20, "n_positions": 12, "n_embd": 6, "n_layer": 2, "n_head": 2, "n_inner": 8}
        drop = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        torch.manual_seed(0)
        config = GPT2Config(**sizes, **drop, attn_implementation="eager")
        return shaken(build_bridge_from_module(GPT2LMHeadModel(config).eval(), "GPT2LMHeadModel", hf_config=config))


def shaken(model: Any) -> Any:
    """Every parameter moved at random, so that no bias is 0 and no gain 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def without_biases(model: Any) -> Any:
    """The attention's biases set to 0."""
    with torch.no_grad():
        for block in model.blocks:
            for name in ("b_Q", "b_K", "b_V", "b_O"):
                getattr(block.attn, name).zero_()
    return model


def words(count: int = 5, rows: int = 8) -> Tensor:
    return torch.randint(0, SIZES["d_vocab"], (count, rows), generator=torch.Generator().manual_seed(2))


def rows(count: int = 5, n: int = 8, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, n, SIZES["d_model"], dtype=torch.float64, generator=generator)


def by_hand(
    model: Any,
    z: Tensor,
    linear: bool = False,
    no_head: tuple[int, int] | None = None,
    no_mlp: int | None = None,
    no_layer: int | None = None,
    depth: int | None = None,
    stream: bool = False,
) -> Tensor:
    """The forward pass written down from the weights: softmax or q kᵀ/√d_head under a causal mask, norms, MLPs.

    z: numbers of a vocabulary (embedded, with positions) or the stream before block 0. `stream`: do not unembed.
    """
    cfg = model.cfg
    if not z.is_floating_point():
        z = model.W_E[z] + model.W_pos[: z.shape[1]]
    causal = torch.ones(z.shape[1], z.shape[1], dtype=torch.bool).tril()
    for layer, block in enumerate(model.blocks[: cfg.n_layers if depth is None else depth]):
        before, attn = z, block.attn
        u = norm(cfg, block.ln1, z)
        for head in range(cfg.n_heads):
            q, k, v = (u @ getattr(attn, f"W_{i}")[head] + getattr(attn, f"b_{i}")[head] for i in "QKV")
            scores = q @ k.transpose(1, 2) / cfg.d_head**0.5
            masked = scores.masked_fill(~causal, 0.0 if linear else -torch.inf)
            if (layer, head) != no_head:
                z = z + (masked if linear else masked.softmax(-1)) @ v @ attn.W_O[head]
        z = z + attn.b_O
        if not cfg.attn_only and layer != no_mlp:
            mlp, approximate = block.mlp, "tanh" if cfg.act_fn == "gelu_new" else "none"
            hidden = functional.gelu(norm(cfg, block.ln2, z) @ mlp.W_in + mlp.b_in, approximate=approximate)
            z = z + hidden @ mlp.W_out + mlp.b_out
        z = before if layer == no_layer else z
    if stream:
        return z
    return norm(cfg, getattr(model, "ln_final", None), z) @ model.W_U + model.b_U


def norm(cfg: Any, ln: Any, z: Tensor) -> Tensor:
    return z if cfg.normalization_type is None else functional.layer_norm(z, z.shape[-1:], ln.w, ln.b, cfg.eps)
