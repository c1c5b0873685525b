"""A model as a differentiable function of its prompt: block coordinates in, the read-out at every depth out."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import Hooked, float64_copy, hook_name, run_with_hooks
from interp.layout import BlockLayout
from interp.unrolling.moments import check_prompts
from interp.unrolling.spectral import input_block


@dataclass(frozen=True, eq=False)
class Forward:
    """A model in float64 and the prompts at which it is decoded.

    Args:
        u: the prompts in block coordinates [prompt, token, D].
        query: which of the query rows is the one that decoding differentiates in.
    """

    model: Any
    layout: BlockLayout
    u: Float[Tensor, "prompt token D"]
    query: int = 0

    @property
    def x(self) -> slice:
        """The inputs among the coordinates."""
        return self.layout.slices[input_block(self.layout)]

    @property
    def y(self) -> slice:
        """The block that is read out, whose context rows hold the labels."""
        return self.layout.slices[self.layout.readout]

    @property
    def n(self) -> int:
        """How many context rows."""
        return self.layout.n_context(self.u.shape[1])

    @property
    def A(self) -> Float[Tensor, "prompt n d"]:
        """The inputs of the context rows."""
        return self.u[:, : self.n, self.x]

    @property
    def b(self) -> Float[Tensor, "prompt d"]:
        """The inputs of the query row."""
        return self.u[:, self.n + self.query, self.x]

    @property
    def C(self) -> Float[Tensor, "prompt n out"]:
        """The labels."""
        return self.u[:, : self.n, self.y]

    @property
    def is_stream(self) -> bool:
        """Are the tokens the residual stream, so that the layout describes its rows at every depth."""
        return getattr(self.model.cfg, "d_in", None) is None

    @property
    def copies(self) -> list[str]:
        """The blocks that hold the labels: the read-out block, and those that rotate with it and start as its copy."""
        layout, context = self.layout, self.u[:, : self.n]
        return [
            name
            for name, at in layout.slices.items()
            if layout.rotates_with(name) == layout.rotates_with(layout.readout)
            and torch.equal(context[..., at], context[..., self.y])
        ]

    def placed(
        self,
        u: Float[Tensor, "some token D"],
        b: Float[Tensor, "some d"] | None = None,
        C: Float[Tensor, "some n out"] | None = None,
    ) -> Float[Tensor, "some token D"]:
        """Prompts with another query, other labels, or both; nothing is written in place: it can be differentiated."""
        context, queries = u[:, : self.n], u[:, self.n :]
        if C is not None:
            context = _replaced(context, self.layout, dict.fromkeys(self.copies, C))
        if b is not None:
            row = _replaced(
                queries[:, self.query : self.query + 1], self.layout, {input_block(self.layout): b[:, None]}
            )
            queries = torch.cat([queries[:, : self.query], row, queries[:, self.query + 1 :]], dim=1)
        return torch.cat([context, queries], dim=1)

    def read(self, u: Float[Tensor, "some token D"]) -> Float[Tensor, "depth some out"]:
        """The read-out of the query row at depth 0, 1, …, L."""
        return self.read_all(u)[:, :, self.query]

    def read_all(self, u: Float[Tensor, "some token D"]) -> Float[Tensor, "depth some query out"]:
        """The read-out of every query row at depth 0, 1, …, L."""
        tokens = u @ self.layout.basis.T.to(u)
        return torch.stack([read_stream(self.model, self.layout, z) for z in streams(self.model, tokens)])


def forward_of(model: Any, prompts: Any, layout: BlockLayout | None = None, query: int = 0) -> Forward:
    """A float64 copy of the model, and the prompts in block coordinates.

    Raises:
        ValueError: the model has no hooks, the layout does not describe its tokens, prompts are empty or not finite,
            there is no such query row.
    """
    if not isinstance(model, Hooked):
        raise ValueError(
            f"decode: a {type(model).__name__} is no hooked model; it needs cfg, blocks, hook_dict, run_with_hooks and "
            "run_with_cache, as in interp.hooks.Hooked"
        )
    layout = _layout(model, layout)
    tokens = check_prompts(prompts, layout)
    width = getattr(model.cfg, "d_in", None) or model.cfg.d_model
    read_in_only = getattr(model.cfg, "d_in", None) is not None and getattr(model.cfg, "d_out", None) is None
    if layout.d_model != width or read_in_only:
        raise ValueError(
            f"decode: the layout describes {layout.d_model} columns {layout.widths} and the model's tokens have "
            f"{width}"
            + (", read in by learned weights but read out through the layout" if read_in_only else "")
            + "; decoding needs one layout for tokens and answers"
        )
    _check_own(model, layout)
    if not 0 <= query < layout.n_query:
        raise ValueError(f"decode: query={query} is none of the {layout.n_query} query rows, counted from 0")
    return Forward(_in_float64(model), layout, layout.coordinates(tokens), query)


def _layout(model: Any, layout: BlockLayout | None) -> BlockLayout:
    """The layout given, or the model's own."""
    layout = getattr(model, "layout", None) if layout is None else layout
    if not isinstance(layout, BlockLayout):
        raise ValueError("decode: the model carries no layout; pass one, as in BlockLayout.standard(x=10, y=5)")
    return layout


def _check_own(model: Any, layout: BlockLayout) -> None:
    """A layout that reads other rows or columns than the model's own would decode another answer than it gives."""
    own = getattr(model, "layout", None)
    if not isinstance(own, BlockLayout):
        return
    given, expected = (
        f"{item.n_query} query rows and blocks {item.widths}, {item.readout} read out with sign {item.sign:g}"
        for item in (layout, own)
    )
    if given != expected or not torch.allclose(layout.reader, own.reader, rtol=1e-6, atol=1e-9):
        raise ValueError(
            f"decode: the layout given has {given}, the model's own {expected}"
            + ("" if given != expected else " from other columns")
            + "; pass none to use the model's own"
        )


def _in_float64(model: Any) -> Any:
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ValueError(f"decode: the weight {name} holds NaN or inf; reload or retrain the model")
    return float64_copy(model).eval()


def streams(model: Any, tokens: Float[Tensor, "some token width"]) -> list[Tensor]:
    """The residual stream at depth 0, 1, …, L, with its derivatives.

    Raises:
        ValueError: a hook point is missing or did not fire.
    """
    names = [hook_name("resid_pre", 0), *(hook_name("resid_post", layer) for layer in range(model.cfg.n_layers))]
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda z, hook: found.__setitem__(name, z)

    run_with_hooks(model, tokens, [(name, keep(name)) for name in names])
    absent = [name for name in names if name not in found]
    if absent:
        raise ValueError(f"the hook point {absent[0]!r} exists but did not fire in this forward pass")
    return [found[name] for name in names]


def read_stream(model: Any, layout: BlockLayout, z: Float[Tensor, "some token d_model"]) -> Tensor:
    """What the model would answer from a residual stream [some, query, out].

    Through the layout; a model with a read-out of its own (`cfg.d_out`) through `unembed(ln_final(z))`, at every depth.
    """
    if getattr(model.cfg, "d_out", None) is None:
        return layout.predict(z)
    return model.unembed(model.ln_final(z))[:, -layout.n_query :]


def _replaced(rows: Tensor, layout: BlockLayout, values: dict[str, Tensor]) -> Tensor:
    """Rows with the given blocks in place of their own."""
    return torch.cat([values.get(name, rows[..., at]) for name, at in layout.slices.items()], dim=-1)
