"""How a hooked model forms its attention pattern from q and k, and whether it takes another pattern from a hook."""

from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import hook_name, run_with_hooks
from interp.kernels import KERNELS, AttentionKernel, FeatureMap
from interp.layout import BlockLayout

AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True, eq=False)
class OwnAttention:
    """Kernel, scale of the scores and visible keys of a model.

    Of our models from config and layout. Of TransformerLens's: softmax, 1/attn_scale (−1 stands for 1/√d_head there),
    causal unless `attention_dir` says bidirectional. `check` holds it against the pattern that the model forms.
    """

    model: Any
    kernel: AttentionKernel
    layout: BlockLayout | None
    checked: set[int] = field(default_factory=set)
    _masks: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Any) -> "OwnAttention":
        kernel, layout = getattr(model.cfg, "kernel", None), getattr(model, "layout", None)
        if isinstance(kernel, AttentionKernel) and isinstance(layout, BlockLayout):
            return cls(model, kernel, layout)
        return cls(model, KERNELS["softmax"], None)

    def scale(self, n_tokens: int) -> float:
        cfg = self.model.cfg
        if self.layout is not None:
            return self.kernel.scale_factor(cfg.d_head, self.layout.n_context(n_tokens))
        if not getattr(cfg, "use_attn_scale", True):
            return 1.0
        stated = getattr(cfg, "attn_scale", None)
        return 1 / stated if stated is not None and stated > 0 else cfg.d_head**-0.5

    def allowed(self, n_tokens: int, device: torch.device) -> Tensor:
        """[head or 1, query, key]; kept from one call to the next."""
        key = (n_tokens, device)
        if key not in self._masks:
            self._masks.clear()
            self._masks[key] = self._mask(n_tokens, device)
        return self._masks[key]

    def _mask(self, n_tokens: int, device: torch.device) -> Tensor:
        if self.layout is not None:
            return self.layout.allowed(n_tokens, self.model.cfg.n_heads).to(device)
        everything = torch.ones(1, n_tokens, n_tokens, dtype=torch.bool, device=device)
        return (
            everything if getattr(self.model.cfg, "attention_dir", "causal") == "bidirectional" else everything.tril()
        )

    def pattern(
        self,
        kernel: AttentionKernel,
        layer: int,
        q: Float[Tensor, "batch token head d_head"],
        k: Float[Tensor, "batch token head d_head"],
    ) -> Float[Tensor, "batch head query key"]:
        """The pattern of a kernel at the model's own scale, where the model's own mask allows."""
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        learned: FeatureMap | None = getattr(self.model.blocks[layer].attn, "learned_features", None)
        scores = kernel.scores_at(self.scale(q.shape[-2]), q, k, learned)
        allowed = self.allowed(q.shape[-2], q.device)
        return kernel.pattern(scores, allowed, not bool(allowed.any(-1).all()))

    def check(self, layer: int, q: Tensor, k: Tensor, pattern: Float[Tensor, "batch head query key"]) -> None:
        """Once a layer: the pattern recomputed from q and k is the one the model formed.

        Raises:
            ValueError: it is not, so that something this toolkit does not know acts between q, k and the pattern.
        """
        if layer in self.checked:
            return
        q, k, pattern = q[:2], k[:2], pattern[:2]
        known = q.ndim == k.ndim == 4 and q.shape == k.shape
        again = self.pattern(self.kernel, layer, q, k) if known else None
        gap = torch.inf if again is None else ((again - pattern).abs().max() / pattern.abs().max().clamp(min=1)).item()
        if not gap <= AGREEMENT.get(q.dtype, 1e-2) and pattern.isfinite().all():
            raise ValueError(
                f"swap_kernel: the pattern of layer {layer} is not {self.kernel} of hook_q and hook_k (off by "
                f"{gap:.2g}); positions, caps or masks that act in between would change with the kernel, so this "
                "model cannot be swapped"
            )
        self.checked.add(layer)


def refuse_by_name(model: Any) -> None:
    """TransformerLens 3's TransformerBridge ignores edits of patterns without a word."""
    if type(model).__name__ != "TransformerBridge" or not type(model).__module__.startswith("transformer_lens"):
        return
    try:
        installed = version("transformer-lens")
    except PackageNotFoundError:
        return
    if int(installed.partition(".")[0]) < 4:
        raise ValueError(
            f"the TransformerBridge of transformer-lens {installed} ignores edits of attention patterns; use its "
            "HookedTransformer, or transformer-lens 4"
        )


def check_pattern_edits(model: Any, tokens: Tensor) -> None:
    """Halve every attention pattern: the output has to move.

    Raises:
        ValueError: it does not, so the model ignores what hooks return (or attends to nothing that counts).
    """
    refuse_by_name(model)
    halved = [(hook_name("pattern", layer), lambda pattern, hook: pattern / 2) for layer in range(model.cfg.n_layers)]
    with torch.no_grad():
        clean, moved = (run_with_hooks(model, tokens[:2], hooks) for hooks in ([], halved))
    if torch.equal(clean, moved):
        raise ValueError(
            "halving every attention pattern leaves the output as it is: this model ignores edits of hook_pattern, so "
            "nothing about its attention can be concluded from them"
        )
