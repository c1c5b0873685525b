"""GPT-2 on continuous tokens, as arXiv 2208.01066 trains it: a Linear read_in, transformers' GPT2Model, a read_out.

Tokens alternate, x_1, (y_1, 0, …, 0), x_2, …, and the output at an x token is the answer there. The backbone is causal
softmax attention with biases, learned positions, layer norm before attention and MLP and at the end, and gelu_new. The
weights do not hold the number of heads: it is given, or read from a config.yaml beside the file.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.foreign.arrays import expect_shape, refuse_unused, to_weights
from models.foreign.contents import Contents
from models.foreign.gpt2_parity import gpt2_parity
from models.foreign.tokens import ALTERNATING, TokenForm
from models.foreign.value import Foreign, ForeignError, Parity
from models.transformer import HookedTransformer

NAME = "gpt2-icl"
OPTIONS = ("heads",)
UNREAD = re.compile(r"backbone\.(wte\.weight|h\.\d+\.attn\.(bias|masked_bias))")
"""The vocabulary, which continuous tokens pass by, and the buffers of older versions of transformers."""
KERNEL = AttentionKernel("exp", "sum", "sqrt_d_head")
CAUSAL = Visibility("causal", "causal")


def takes(contents: Contents) -> bool:
    """Does the state dict have a read_in, a GPT-2 backbone and a read_out."""
    telling = {"read_in.weight", "backbone.wpe.weight", "read_out.weight"}
    return contents.kind in ("torch", "safetensors") and telling <= set(_plain_names(contents.arrays))


def is_vocabulary_model(contents: Contents) -> bool:
    """Is it a GPT-2 that reads a vocabulary and no continuous tokens."""
    names = set(_plain_names(contents.arrays))
    embeds = any(name.endswith(("wte.weight", "embed.W_E", "embed_tokens.weight")) for name in names)
    return embeds and "read_in.weight" not in names


def load(contents: Contents, heads: int | None = None) -> Foreign:
    """The model of a state dict; `heads` where no config.yaml beside the file says it.

    Raises:
        ForeignError: the number of heads is not known or does not divide the width, the config names another
            architecture, a weight is missing, left over or of the wrong shape.
    """
    named = {name: W for name, W in _plain_names(contents.arrays).items() if not UNREAD.fullmatch(name)}
    weights, notes = to_weights(named, contents.name)
    _, width = expect_shape(weights, "backbone.wpe.weight", None, None)
    found = _heads(contents, heads, width)
    cfg = _config(weights, found)
    converted, used = _converted(weights, cfg)
    refuse_unused(weights, used, NAME)
    model = HookedTransformer.from_weights(cfg, _layout(cfg), converted)
    parity = gpt2_parity(model, weights)
    provenance = contents.provenance(NAME, heads=found)
    return Foreign(model, TokenForm(ALTERNATING), provenance, (*_notes(parity), *notes), parity)


def _notes(parity: Parity | None) -> tuple[str, ...]:
    assumed = "gelu_new, scores / √d_head and eps 1e-5, GPT-2's own settings, which are not in the weights"
    unchecked = "transformers is not installed, so parity with its GPT2Model was not checked"
    return (assumed,) if parity is not None else (assumed, unchecked)


def _plain_names(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The names without the prefix of a parallel wrapper and without leading underscores."""
    return {re.sub(r"^(module\.)?_?", "", name): array for name, array in arrays.items()}


def _layout(cfg: TransformerConfig) -> BlockLayout:
    """One block: a column holds an entry of x in one token and y or 0 in the next; the read-out is the model's own."""
    return BlockLayout.standard(x=cfg.token_width, readout="x", visibility=CAUSAL)


def _heads(contents: Contents, given: int | None, width: int) -> int:
    config = contents.path.with_name("config.yaml")
    text = config.read_text(encoding="utf-8") if contents.kind != "memory" and config.is_file() else ""
    family, stated = (re.search(rf"^\s*{key}:\s*['\"]?(\w+)", text, re.MULTILINE) for key in ("family", "n_head"))
    if family is not None and family[1] != "gpt2":
        raise ForeignError(f"{config.name} beside {contents.name} names the family {family[1]}; only gpt2 is read")
    heads = given if given is not None else int(stated[1]) if stated is not None and stated[1].isdigit() else None
    if heads is None:
        raise ForeignError(
            f"the weights of {contents.name} do not tell the number of heads, and there is no config.yaml with n_head "
            "beside it; give --heads"
        )
    if heads < 1 or width % heads:
        raise ForeignError(f"{heads} heads do not divide the width {width} of {contents.name}; give the right --heads")
    return heads


def _config(weights: Mapping[str, Tensor], heads: int) -> TransformerConfig:
    n_ctx, width = expect_shape(weights, "backbone.wpe.weight", None, None)
    _, d_in = expect_shape(weights, "read_in.weight", width, None)
    d_out, _ = expect_shape(weights, "read_out.weight", None, width)
    _, d_mlp = expect_shape(weights, "backbone.h.0.mlp.c_fc.weight", width, None)
    layers = {int(match[1]) for name in weights if (match := re.match(r"backbone\.h\.(\d+)\.", name))}
    return TransformerConfig(
        n_layers=max(layers) + 1,
        n_heads=heads,
        d_model=width,
        d_head=width // heads,
        kernel=KERNEL,
        attn_only=False,
        d_mlp=d_mlp,
        act_fn="gelu_new",
        normalization_type="LN",
        use_biases=True,
        positional_embedding_type="standard",
        n_ctx=n_ctx,
        d_in=d_in,
        d_out=d_out,
    )


def _converted(weights: Mapping[str, Tensor], cfg: TransformerConfig) -> tuple[dict[str, Tensor], set[str]]:
    """The weights by our names, and the names they had; transformers' Conv1D keeps [in, out], Linear [out, in]."""
    assert cfg.d_mlp is not None and cfg.d_out is not None
    D, M, used = cfg.d_model, cfg.d_mlp, set()

    def take(name: str, *shape: int) -> Tensor:
        expect_shape(weights, name, *shape)
        used.add(name)
        return weights[name]

    made = {
        "embed.W_E": take("read_in.weight", D, cfg.token_width).T,
        "embed.b_E": take("read_in.bias", D),
        "pos_embed.W_pos": take("backbone.wpe.weight", cfg.n_ctx or 0, D),
        "ln_final.w": take("backbone.ln_f.weight", D),
        "ln_final.b": take("backbone.ln_f.bias", D),
        "unembed.W_U": take("read_out.weight", cfg.d_out, D).T,
        "unembed.b_U": take("read_out.bias", cfg.d_out),
    }
    for layer in range(cfg.n_layers):
        theirs, ours = f"backbone.h.{layer}", f"blocks.{layer}"
        columns = take(f"{theirs}.attn.c_attn.weight", D, 3 * D).split(D, dim=1)
        shifts = take(f"{theirs}.attn.c_attn.bias", 3 * D).split(D)
        for name, W, b in zip("QKV", columns, shifts, strict=True):
            made[f"{ours}.attn.W_{name}"] = W.unflatten(1, (cfg.n_heads, cfg.d_head)).transpose(0, 1)
            made[f"{ours}.attn.b_{name}"] = b.unflatten(0, (cfg.n_heads, cfg.d_head))
        made[f"{ours}.attn.W_O"] = take(f"{theirs}.attn.c_proj.weight", D, D).unflatten(0, (cfg.n_heads, cfg.d_head))
        made[f"{ours}.attn.b_O"] = take(f"{theirs}.attn.c_proj.bias", D)
        for name, part, shape in (("in", "c_fc", (D, M)), ("out", "c_proj", (M, D))):
            made[f"{ours}.mlp.W_{name}"] = take(f"{theirs}.mlp.{part}.weight", *shape)
            made[f"{ours}.mlp.b_{name}"] = take(f"{theirs}.mlp.{part}.bias", shape[1])
        for norm in (1, 2):
            made[f"{ours}.ln{norm}.w"] = take(f"{theirs}.ln_{norm}.weight", D)
            made[f"{ours}.ln{norm}.b"] = take(f"{theirs}.ln_{norm}.bias", D)
    return {name: W.contiguous() for name, W in made.items()}, used
