"""A model as a function of continuous tokens, in float64."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import Hooked, capture, check_names, hook_name, run_with_hooks
from interp.layout import BlockLayout

STREAM = hook_name("resid_pre", 0)
Values = dict[str, Tensor]  # by hook point; the first axis counts prompts


@dataclass(frozen=True, eq=False)
class Asked:
    """A model in float64 as a function of continuous tokens: the answers of its query rows.

    Models of ours answer by their own read-out. Of others the layout reads the last residual stream, or without one the
    output of the last row is the answer. A model of a vocabulary is given the tokens as its residual stream.
    """

    model: Any
    layout: BlockLayout | None

    @property
    def n_query(self) -> int:
        return self.layout.n_query if self.layout else 1

    @property
    def reads_by_layout(self) -> bool:
        return self.layout is not None and not hasattr(self.model, "layout")

    @property
    def takes_words(self) -> bool:
        """Are the model's own inputs token numbers."""
        return not hasattr(self.model, "layout") and (getattr(self.model.cfg, "d_vocab", None) or 0) > 0

    def __call__(
        self, tokens: Float[Tensor, "some token width"], hooks: Sequence[tuple[str, Any]] = ()
    ) -> Float[Tensor, "some query out"]:
        last: list[Tensor] = []
        hooks = list(hooks)
        given = tokens
        if self.takes_words:
            given = torch.zeros(tokens.shape[:2], dtype=torch.long, device=tokens.device)
            hooks.insert(0, (STREAM, lambda z, hook: tokens))
        if self.reads_by_layout:
            hooks.append((hook_name("resid_post", self.model.cfg.n_layers - 1), lambda z, hook: last.append(z)))
        output = run_with_hooks(self.model, given, hooks)
        if self.layout is not None and self.reads_by_layout:
            return self.layout.predict(last[0])
        return output[:, -self.n_query :]

    def values(self, tokens: Float[Tensor, "prompt token width"], names: Sequence[str]) -> Values:
        """The activations at hook points."""
        if not names:
            return {}
        if not self.takes_words:
            return dict(capture(self.model, tokens, names))
        check_names(self.model, names)
        found: Values = {}

        def keep(name: str) -> Any:  # by the name asked for: a hook point can have several
            return lambda z, hook: found.__setitem__(name, z.detach())

        with torch.no_grad():
            self(tokens, [(name, keep(name)) for name in names])
        absent = [name for name in names if name not in found]
        if absent:
            raise ValueError(f"the hook point {absent[0]!r} exists but did not fire in this forward pass")
        return {name: found[name] for name in names}


def ask(model: Any, layout: BlockLayout | None) -> Asked:
    if not isinstance(model, Hooked):
        raise ValueError(f"linearise: a {type(model).__name__} is no hooked model; see interp.hooks.Hooked")
    network: Any = model
    own = getattr(network, "layout", None)
    if own is not None and layout is not None and layout.n_query != own.n_query:
        raise ValueError(
            f"linearise: the layout has {layout.n_query} query rows and the model's own {own.n_query}; pass none to "
            "use the model's own"
        )
    for name, weight in network.named_parameters():
        if not weight.isfinite().all():
            raise ValueError(f"linearise: the weight {name} holds NaN or inf; reload or retrain the model")
    copy = deepcopy(network).double().eval()
    if isinstance(getattr(copy.cfg, "dtype", None), torch.dtype):
        copy.cfg.dtype = torch.float64  # to which TransformerLens's norms cast what they return
    return Asked(copy, own if layout is None else layout)


def tokens_of(prompts: Any) -> Float[Tensor, "prompt token width"]:
    tokens = getattr(prompts, "tokens", prompts)
    if not isinstance(tokens, Tensor) or tokens.ndim != 3 or not len(tokens) or not tokens.is_floating_point():
        given = f"a {tokens.dtype} tensor {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(
            f"linearise: prompts must be continuous tokens [prompt, token, width], got {given}; of a model of a "
            "vocabulary take its residual stream before block 0"
        )
    if not tokens.isfinite().all():
        raise ValueError("linearise: the prompts hold NaN or inf; leave those prompts out")
    return tokens.double()
