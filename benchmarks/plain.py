"""The forward passes of two models in plain torch: no modules, no hook points, no checks, the same weights."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from models.transformer import HookedTransformer


def linear_attention(model: HookedTransformer) -> Callable[[Tensor], Tensor]:
    """Linear attention with any number of heads, every row sees the context."""
    layers = [[getattr(block.attn, f"W_{name}").clone() for name in "QKVO"] for block in model.blocks]
    n_query, readout, sign = model.layout.n_query, model.layout.slices["y"], model.layout.sign

    def project(z: Tensor, W: Tensor) -> Tensor:
        return functional.linear(z, W.mT.flatten(0, 1)).unflatten(-1, (len(W), -1)).transpose(1, 2)

    def forward(z: Tensor) -> Tensor:
        for W_Q, W_K, W_V, W_O in layers:
            q, k, v = project(z, W_Q), project(z, W_K), project(z, W_V)
            mixed = q @ (k[..., :-n_query, :].mT @ v[..., :-n_query, :])
            z = z + mixed.transpose(1, 2).flatten(-2) @ W_O.flatten(0, 1)
        return sign * z[..., readout]

    return forward


def single_head(model: HookedTransformer) -> Callable[[Tensor], Tensor]:
    """The same for one head, with matrices in place of heads: the least that plain torch can do."""
    layers = [[getattr(block.attn, f"W_{name}")[0].clone() for name in "QKVO"] for block in model.blocks]
    n_query, readout, sign = model.layout.n_query, model.layout.slices["y"], model.layout.sign

    def forward(z: Tensor) -> Tensor:
        for W_Q, W_K, W_V, W_O in layers:
            q, k, v = z @ W_Q, z @ W_K, z @ W_V
            z = z + (q @ (k[:, :-n_query].mT @ v[:, :-n_query])) @ W_O
        return sign * z[..., readout]

    return forward


def softmax_transformer(model: HookedTransformer) -> Callable[[Tensor], Tensor]:
    """Pre-LN, softmax attention under a mask, GELU MLP, biases, read-in and read-out."""
    cfg, weights = model.cfg, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    heads, d_head, width = cfg.n_heads, cfg.d_head, (cfg.d_model,)
    for layer in range(cfg.n_layers):
        for name in "QKV":
            prefix = f"blocks.{layer}.attn"
            weights[f"{prefix}.W_{name}"] = weights[f"{prefix}.W_{name}"].transpose(0, 1).flatten(1).contiguous()
            weights[f"{prefix}.b_{name}"] = weights[f"{prefix}.b_{name}"].flatten()
        weights[f"blocks.{layer}.attn.W_O"] = weights[f"blocks.{layer}.attn.W_O"].flatten(0, 1)

    def block(z: Tensor, w: dict[str, Tensor], hidden: Tensor) -> Tensor:
        u = functional.layer_norm(z, width, w["ln1.w"], w["ln1.b"], cfg.eps)
        q, k, v = (
            functional.linear(u, w[f"attn.W_{name}"].T, w[f"attn.b_{name}"])
            .unflatten(-1, (heads, d_head))
            .transpose(1, 2)
            for name in "QKV"
        )
        scores = (d_head**-0.5 * q) @ k.mT
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        z = z + functional.linear(mixed.transpose(1, 2).flatten(-2), w["attn.W_O"].T, w["attn.b_O"])
        u = functional.layer_norm(z, width, w["ln2.w"], w["ln2.b"], cfg.eps)
        u = functional.gelu(functional.linear(u, w["mlp.W_in"].T, w["mlp.b_in"]))
        return z + functional.linear(u, w["mlp.W_out"].T, w["mlp.b_out"])

    layers = [
        {
            name.removeprefix(f"blocks.{i}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"blocks.{i}.")
        }
        for i in range(cfg.n_layers)
    ]

    def forward(tokens: Tensor) -> Tensor:
        hidden = ~model.layout.allowed(tokens.shape[1], 1)
        z = functional.linear(tokens, weights["embed.W_E"].T, weights["embed.b_E"])
        for w in layers:
            z = block(z, w, hidden)
        u = functional.layer_norm(z, width, weights["ln_final.w"], weights["ln_final.b"], cfg.eps)
        return functional.linear(u, weights["unembed.W_U"].T, weights["unembed.b_U"])

    return forward
