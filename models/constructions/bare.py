"""Bare matrices: Q, K, V, O of every layer, the kernel and the layout in one npz; no name, no family, no metadata."""

import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.constructions.heads import weights_of
from models.transformer import HookedTransformer

LETTERS = {"Q": "W_Q", "K": "W_K", "V": "W_V", "O": "W_O"}


def save(model: HookedTransformer, path: str | Path) -> None:
    """Write an attention-only model: Q, K, V [layer, head, d_model, d_head] and O [layer, head, d_head, d_model] in
    float64, and the JSON of {"kernel": …, "layout": …} as bytes.

    Raises:
        ValueError: the model has other weights (biases, norms, MLPs, read-in).
    """
    weights = weights_of(model)
    about = json.dumps({"kernel": model.cfg.kernel.to_dict(), "layout": model.layout.to_dict()}).encode()
    matrices: dict[str, Any] = {letter: weights[name].numpy() for letter, name in LETTERS.items()}
    with open(path, "wb") as file:
        np.savez(file, about=np.frombuffer(about, dtype=np.uint8), **matrices)


def load(path: str | Path) -> HookedTransformer:
    """The model that `save` wrote, in float64. Nothing is unpickled.

    Raises:
        ValueError: there is no such file, or it does not hold such a model.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            weights = {name: torch.from_numpy(file[letter]) for letter, name in LETTERS.items()}
        kernel, layout = AttentionKernel(**about["kernel"]), BlockLayout.from_dict(about["layout"])
        n_layers, n_heads, d_model, d_head = weights["W_Q"].shape
        cfg = TransformerConfig(n_layers, n_heads, d_model, d_head, kernel=kernel)
        by_layer = {
            f"blocks.{layer}.attn.{name}": weight[layer]
            for name, weight in weights.items()
            for layer in range(n_layers)
        }
        return HookedTransformer.from_weights(cfg, layout, by_layer)
    except (OSError, EOFError, BadZipFile, KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} holds no bare matrices of a model: {error}") from error
