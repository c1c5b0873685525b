"""Parity of a converted GPT-2 with transformers' own GPT2Model, built from a config: nothing is downloaded."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from models.config import TransformerConfig
from models.foreign.value import Array, Parity, check_parity
from models.transformer import HookedTransformer


def gpt2_parity(model: HookedTransformer, weights: Mapping[str, Tensor]) -> Parity | None:
    """The check in float64 on short sequences; None without transformers.

    Raises:
        ForeignError: the outputs differ.
    """
    try:
        backbone = _backbone(model.cfg, weights)
    except ImportError:
        return None

    @torch.no_grad()
    def reference(tokens: Array) -> Array:
        embeds = functional.linear(torch.from_numpy(tokens), weights["read_in.weight"], weights["read_in.bias"])
        hidden = backbone(inputs_embeds=embeds, use_cache=False).last_hidden_state
        return functional.linear(hidden, weights["read_out.weight"], weights["read_out.bias"]).numpy()

    context = min(10, (model.cfg.n_ctx or 2) - 1)
    return check_parity(model, reference, "GPT2Model of transformers", n_context=context)


def _backbone(cfg: TransformerConfig, weights: Mapping[str, Tensor]) -> torch.nn.Module:
    """Their module with these weights; its vocabulary, which is not used, has one word."""
    from transformers import GPT2Config, GPT2Model  # pyright: ignore[reportPrivateImportUsage]

    config = GPT2Config(
        vocab_size=1,
        n_positions=cfg.n_ctx or 1,
        n_embd=cfg.d_model,
        n_layer=cfg.n_layers,
        n_head=cfg.n_heads,
        n_inner=cfg.d_mlp,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        backbone = GPT2Model(config).double().eval()
    own = {name.removeprefix("backbone."): W for name, W in weights.items() if name.startswith("backbone.")}
    backbone.load_state_dict({**own, "wte.weight": torch.zeros(1, cfg.d_model)}, strict=False)
    return backbone
