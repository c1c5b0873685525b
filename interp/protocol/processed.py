"""Was a model processed when it was loaded: what its config says, and what its weights show."""

from typing import Any

import torch
from torch import Tensor

from interp.hooks import is_transformer_lens

CENTRED = 1e-5  # mean of a row, relative to the rms; of weights that were not centred it is about 1/√width


def signs_of_processing(model: Any) -> tuple[str, ...]:
    """One sentence for each step of TransformerLens's processing that can be seen.

    `fold_value_biases` and `center_unembed` change what a regression model answers; a config does not record them, but
    biases b_V that are all 0 beside b_O that are not, and rows that sum to 0, are no accident.
    """
    if not is_transformer_lens(model):
        return ()
    cfg, found = model.cfg, []
    kind = str(getattr(cfg, "normalization_type", None))
    if kind.endswith("Pre") or getattr(cfg, "layer_norm_folding", False):
        found.append("gains and biases of the norms are folded into the weights (fold_ln: the config says so)")
    if getattr(model, "compatibility_mode", False):
        found.append("the bridge is in compatibility mode, which folds and centres weights unless told not to")
    attention = [block.attn for block in model.blocks]
    if _all_zero(attention, "b_V") and not _all_zero(attention, "b_O"):
        found.append("every b_V is 0 and b_O is not: value biases may be folded (fold_value_biases)")
    if _centred(getattr(model, "W_U", None)):
        found.append("the rows of W_U sum to 0: the unembedding is centred (center_unembed), which moves the outputs")
    if all(_centred(attn.W_O) for attn in attention):
        found.append("the rows of every W_O sum to 0: writing weights are centred (center_writing_weights)")
    return tuple(found)


def _all_zero(parts: list[Any], name: str) -> bool:
    biases = [getattr(part, name, None) for part in parts]
    return all(bias is not None and not bool(bias.any()) for bias in biases)


def _centred(weight: Tensor | None) -> bool:
    """Of more than one column, not 0, and with rows that sum to 0."""
    if weight is None or weight.shape[-1] < 2:
        return False
    weight = weight.detach()
    size, bound = weight.square().mean().sqrt(), max(CENTRED, torch.finfo(weight.dtype).eps)
    return bool(size > 0) and bool((weight.mean(-1).abs() <= bound * size).all())
