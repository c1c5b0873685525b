"""Running interventions on one batch: the layers before the first change are run once and re-used."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.intervention import Hooks, Intervention
from interp.hooks import check_names, hook_name, is_transformer_lens, read_out, run_with_hooks
from interp.layout import BlockLayout

RESUMED = {torch.float64: 1e-12, torch.float32: 1e-5}


class Runs:
    """A model on a batch of prompts; `predictions` of any number of interventions.

    An intervention whose first layer is l goes on from the clean stream before layer l: by the blocks of our models, by
    `start_at_layer` of TransformerLens's and of `interp.protocol.Continuous`. Going on without any change must give the
    clean output (checked once); otherwise, and with `reuse=False`, every intervention is a whole forward pass.
    """

    def __init__(self, model: Any, tokens: Tensor, layout: BlockLayout | None = None, *, reuse: bool = True) -> None:
        layout = getattr(model, "layout", None) if layout is None else layout
        self.model, self.tokens, self.layout = model, tokens, layout
        self.stream: dict[int, Tensor] = {}
        with torch.no_grad():
            self.output = run_with_hooks(model, tokens, self._keep_stream())
            self.reuses = reuse and self._resumes()
        self.clean = self.read(self.output)

    def read(self, output: Tensor) -> Float[Tensor, "prompt *shape"]:
        """The predictions in the model's output: its query rows, or all of it where no layout tells."""
        return output[:, -self.layout.n_query :] if self.layout is not None else output

    def predictions(self, intervention: Intervention) -> Float[Tensor, "prompt *shape"]:
        """The model's answers with the intervention."""
        with torch.no_grad():
            if intervention.kind == "exit":
                return self.read(self._read_out(self.stream[intervention.layers[0]]))
            hooks, first = intervention.hooks(), min(intervention.layers)
            if self.reuses and first:
                return self.read(self._resume(first, hooks))
            return self.read(run_with_hooks(self.model, self.tokens, hooks))

    def _keep_stream(self) -> Hooks:
        layers = self.model.cfg.n_layers

        def keep(depth: int) -> Any:
            return lambda z, hook=None: self.stream.__setitem__(depth, z.detach())

        points = [(hook_name("resid_pre", layer), keep(layer)) for layer in range(layers)]
        return [*points, (hook_name("resid_post", layers - 1), keep(layers))]

    def _resume(self, layer: int, hooks: Hooks) -> Tensor:
        check_names(self.model, (name for name, _ in hooks))
        z = self.stream[layer]
        if is_transformer_lens(self.model) or getattr(self.model, "starts_at_layers", False):
            return self.model.run_with_hooks(z, fwd_hooks=hooks, start_at_layer=layer)
        with self.model.hooks(fwd_hooks=hooks):
            for block in self.model.blocks[layer:]:
                z = block(z)
            return self._read_out(z)

    def _read_out(self, z: Float[Tensor, "prompt token d_model"]) -> Tensor:
        return read_out(self.model, z)

    def _resumes(self) -> bool:
        """Does going on from the last layer's stream give the output."""
        try:
            again = self._resume(self.model.cfg.n_layers - 1, [])
        except (TypeError, AttributeError, NotImplementedError, ValueError):
            return False
        size = self.output.abs().max().clamp(min=torch.finfo(again.dtype).tiny)
        return bool((again - self.output).abs().max() <= RESUMED.get(again.dtype, 1e-2) * size)
