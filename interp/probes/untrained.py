"""The untrained control: the same architecture with random weights, its updates as large as the trained model's."""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.hooks import capture, hook_name


def randomised(model: Any, tokens: Float[Tensor, "batch token d_in"], seed: int = 0) -> Any:
    """A copy with every weight W_… (of torch's and GPT-2's layers: `weight`) drawn from N(0, 1/fan-in), biases 0 and
    layer-norm gains 1.

    Block by block the matrix that writes (W_O, then W_out of the MLP) is scaled until its update has the rms size that
    the trained model's has on these prompts: in linear attention, a cubic map, plain random weights of several blocks
    explode or vanish, and would make an unfair control.

    Raises:
        ValueError: a parameter's name tells neither weight, bias nor gain; pass your own model as `untrained`.
    """
    copy, generator = deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            _draw(copy.get_submodule(name.rpartition(".")[0]), name, parameter, generator)
        for layer, block in enumerate(copy.blocks):
            _match(model, copy, tokens, hook_name("attn_out", layer), block.attn.W_O)
            if getattr(block, "mlp", None) is not None:
                _match(model, copy, tokens, hook_name("mlp_out", layer), block.mlp.W_out)
    return copy


def _draw(owner: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    last = name.rpartition(".")[2]
    if last.startswith("W_") or (last == "weight" and parameter.ndim == 2):
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(drawn / parameter.shape[-1 if isinstance(owner, nn.Linear) else -2] ** 0.5)
    elif last in ("w", "weight"):
        parameter.fill_(1)
    elif last.startswith("b"):
        parameter.zero_()
    else:
        raise ValueError(
            f"no random weights can be drawn for the parameter {name!r}: it is not called W_…, b… or w; build a model "
            "with fresh weights and pass it as untrained=…"
        )


def _match(model: Any, copy: Any, tokens: Tensor, name: str, weight: Tensor) -> None:
    """Scale the copy's writing weight so that the rms at a hook is the model's."""
    wanted, found = (capture(each, tokens, [name])[name].square().mean().sqrt() for each in (model, copy))
    if found > 0:
        weight.mul_(wanted / found)
