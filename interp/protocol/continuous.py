"""TransformerLens's models on regression prompts: rows of the residual stream in place of numbers of a vocabulary."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.ablation.attention import OwnAttention, refuse_by_name
from interp.ablation.swap import swap_hooks
from interp.hooks import HookFunction, hook_name, is_transformer_lens, read_out
from interp.kernels import AttentionKernel, kernel_named
from interp.layout import BlockLayout, Visibility
from interp.unrolling.circuits import attention_biases

READOUTS = ("layout", "unembed")
NamesFilter = str | Sequence[str] | Callable[[str], bool] | None
NEAR = 1e-6  # of a stated scale and √d_head
CHECKED = 6  # rows of the prompts on which a model's own pattern is checked


class Continuous(nn.Module):
    """A TransformerLens model whose prompts are its residual stream before block 0 (`start_at_layer=0`).

    Hook names, weights and hooked runs are the model's own, so that every analysis takes it. The embedding is left
    out, and so are the positions unless `positions` adds the first rows of W_pos. Weights are not touched.

    Args:
        model: a HookedTransformer (transformer-lens 3) or a TransformerBridge (4).
        layout: columns and rows of the prompts. Its visibility is set to the model's: causal, or "all" where
            `attention_dir` says bidirectional.
        readout: "layout" answers with sign · the read-out block of the last stream, "unembed" with the model's own
            unembed(ln_final(z)).
        kernel: another attention kernel in place of softmax in every forward pass (`swap_kernel` in all layers), at the
            model's own scale: with "linear" an attention-only model without norms is a composition of cubic maps,
            and `unroll` takes it.

    Raises:
        ValueError: no model of TransformerLens; the bridge of transformer-lens 3, by name; a layout of another width;
            an unknown read-out or kernel; scores scaled by neither 1 nor 1/√d_head; positions that are not W_pos;
            with `kernel`, a pattern that is not the softmax of hook_q and hook_k.
    """

    starts_at_layers = True

    def __init__(
        self,
        model: Any,
        layout: BlockLayout,
        *,
        positions: bool = False,
        readout: str = "layout",
        kernel: str | AttentionKernel | None = None,
    ) -> None:
        super().__init__()
        check_foreign(model, layout, positions, readout)
        self.foreign, self.positions, self.readout = model, positions, readout
        self.swapped = kernel is not None
        self.own = OwnAttention.of(model)
        seen = "causal" if getattr(model.cfg, "attention_dir", "causal") == "causal" else "all"
        self.layout = replace(layout, visibility=Visibility(seen, seen))
        self.cfg = config_of(model, positions, readout, kernel)
        if self.swapped:
            self._check_pattern()

    @property
    def blocks(self) -> Any:
        return self.foreign.blocks

    @property
    def hook_dict(self) -> Any:
        return self.foreign.hook_dict

    def forward(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token out"]:
        """The answer at every row."""
        return self.run_with_hooks(tokens)

    def predict(self, tokens: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch query out"]:
        """The answer at the query rows."""
        return self(tokens)[:, -self.layout.n_query :]

    def run_with_hooks(
        self,
        tokens: Float[Tensor, "batch token d_model"],
        fwd_hooks: Sequence[tuple[str, HookFunction]] = (),
        start_at_layer: int | None = None,
    ) -> Float[Tensor, "batch token out"]:
        """The answer at every row, with hooks; `start_at_layer` takes `tokens` as the stream before that layer."""
        stream = self._entered(tokens) if start_at_layer is None else tokens
        last: dict[str, Tensor] = {}
        name = hook_name("resid_post", self.cfg.n_layers - 1)
        hooks = [*self._swap(), *fwd_hooks, (name, lambda z, hook=None: last.__setitem__("z", z))]
        output = self.foreign.run_with_hooks(stream, fwd_hooks=hooks, start_at_layer=start_at_layer or 0)
        return output if self.readout == "unembed" else self.unembed(last["z"])

    def run_with_cache(
        self, tokens: Float[Tensor, "batch token d_model"], names_filter: NamesFilter = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The answer and the activations of the chosen hook points; all of those that fire by default."""
        cache: dict[str, Tensor] = {}

        def keep(name: str) -> tuple[str, HookFunction]:
            return name, lambda activation, hook=None: cache.__setitem__(name, activation)

        output = self.run_with_hooks(tokens, [keep(name) for name in self._names(names_filter)])
        return output, cache

    def ln_final(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        """Nothing: the norm, where there is one, belongs to `unembed`."""
        return z

    def unembed(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token out"]:
        """The answer that a residual stream holds."""
        return read_out(self.foreign, z) if self.readout == "unembed" else z @ self.layout.reader.to(z)

    def to(self, *args: Any, **kwargs: Any) -> "Continuous":
        """By the model's own `to`, which keeps its config in step."""
        if args and isinstance(args[0], torch.dtype | torch.device | str):
            kwargs.setdefault("print_details", False)
        self.foreign.to(*args, **kwargs)
        return self

    def double(self) -> "Continuous":
        return self.to(torch.float64)

    def _names(self, chosen: NamesFilter) -> list[str]:
        if callable(chosen):
            return [name for name in self.hook_dict if chosen(name)]
        return list(self.hook_dict) if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)

    def _swap(self) -> list[tuple[str, HookFunction]]:
        if not self.swapped:
            return []
        return swap_hooks(self.foreign, self.cfg.kernel, tuple(range(self.cfg.n_layers)), None, self.own)

    def _check_pattern(self) -> None:
        """Once, here: `OwnAttention.check` looks at values, which later passes under vmap do not allow."""
        weights, generator = self.blocks[0].attn.W_Q, torch.Generator().manual_seed(0)
        rows = torch.randn(2, min(CHECKED, self.cfg.n_ctx), self.cfg.d_model, generator=generator)
        with torch.no_grad():
            self.run_with_hooks(rows.to(weights))

    def _entered(self, tokens: Tensor) -> Tensor:
        weights = self.blocks[0].attn.W_Q
        if not isinstance(tokens, Tensor) or tokens.ndim != 3 or tokens.shape[-1] != self.cfg.d_model:
            given = list(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ValueError(f"the prompts must be rows [batch, token, {self.cfg.d_model}] of the stream, got {given}")
        if tokens.shape[1] > self.cfg.n_ctx:
            raise ValueError(f"the prompts have {tokens.shape[1]} rows, and the model's context is {self.cfg.n_ctx}")
        if tokens.dtype != weights.dtype:
            raise ValueError(f"the prompts are {tokens.dtype} and the weights {weights.dtype}; bring them together")
        return tokens + positions_of(self.foreign)[: tokens.shape[1]] if self.positions else tokens


def check_foreign(model: Any, layout: BlockLayout, positions: bool, readout: str) -> None:
    """Refuse what `Continuous` cannot wrap."""
    if not is_transformer_lens(model):
        raise ValueError(
            f"Continuous: a {type(model).__name__} is no model of TransformerLens; models that take real-valued "
            "prompts need no wrapping"
        )
    refuse_by_name(model)
    if readout not in READOUTS:
        raise ValueError(f"Continuous: unknown readout {readout!r}; known: {', '.join(READOUTS)}")
    if layout.d_model != model.cfg.d_model:
        raise ValueError(
            f"Continuous: the layout has {layout.d_model} columns {layout.widths}, and the model's residual stream "
            f"{model.cfg.d_model}; cover them all, with a block for those of no meaning"
        )
    if positions:
        positions_of(model)


def positions_of(model: Any) -> Float[Tensor, "n_ctx d_model"]:
    """Learned positions that are added once, before block 0.

    Raises:
        ValueError: the model has others (rotary, …) or none.
    """
    kind, found = getattr(model.cfg, "positional_embedding_type", None), getattr(model, "W_pos", None)
    if found is None:  # the bridge of transformer-lens 3
        found = getattr(getattr(model, "pos_embed", None), "weight", None)
    if kind != "standard" or found is None:
        raise ValueError(f"the positions of this model are {kind}, not a W_pos that is added to the stream")
    return found


def config_of(model: Any, positions: bool, readout: str, kernel: str | AttentionKernel | None) -> SimpleNamespace:
    """The model's config, with what this package's configs say besides: kernel, read-in and read-out, biases."""
    cfg = model.cfg
    chosen = kernel_named(kernel) if isinstance(kernel, str) else kernel or kernel_named("softmax")
    changed = {
        "kernel": replace(chosen, scale=scale_named(model)),
        "positional_embedding_type": cfg.positional_embedding_type if positions else None,
        "use_biases": bool(attention_biases(model)),
        "d_in": None,
        "d_out": getattr(cfg, "d_vocab_out", None) if readout == "unembed" else None,
    }
    return SimpleNamespace(**{**vars(cfg), **changed})


def scale_named(model: Any) -> str:
    """The name in `interp.kernels.SCALES` of the model's scale of scores."""
    scale = OwnAttention.of(model).scale(1)
    if abs(scale - 1) < NEAR:
        return "none"
    if abs(scale * model.cfg.d_head**0.5 - 1) < NEAR:
        return "sqrt_d_head"
    raise ValueError(f"Continuous: the model scales its scores by {scale:.4g}, neither 1 nor 1/√d_head; not taken here")
