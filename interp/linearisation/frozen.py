"""A model with parts frozen at given prompts: norm scales, MLP units, attention patterns.

    norm      (z − mean)/s · w + b       with the s of the prompt's own row
    MLP unit  f(u₀) + f′(u₀)(u − u₀)     with the u₀ of the prompt's own row; for ReLU that is the gate 1[u₀ > 0] · u
    pattern   the weights of the prompt's own attention

The frozen model equals the model at these prompts, whatever is frozen, and its derivative leaves out what the scales,
gates and patterns would have done. With norms and gates frozen a model of linear attention is a polynomial; with the
patterns frozen too, every model is an affine map of the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.linearisation.asked import Asked, Values, ask, tokens_of
from interp.linearisation.points import Points, points_of

GATE = " gate"  # beside the name of an MLP's hook point: f′(u₀)
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Frozen:
    """A model frozen at prompts; calling it with tokens of the same shape gives the frozen model's answers.

    Args:
        asked: the model.
        tokens: the prompts at which it is frozen.
        points: what is frozen.
        values: the frozen values. For MLPs: u₀ at `hook_pre`, f(u₀) at `hook_post`, and f′(u₀) under its gate's name.
        piecewise: by MLP, is f(u₀) = f′(u₀) u₀ at all of them: exact as long as no gate changes.
    """

    asked: Asked
    tokens: Float[Tensor, "prompt token width"]
    points: Points
    values: Values = field(repr=False)
    piecewise: tuple[bool, ...] = ()

    def __call__(self, tokens: Float[Tensor, "prompt token width"]) -> Float[Tensor, "prompt query out"]:
        """The frozen answers to tokens that take the place of the prompts."""
        if tokens.shape != self.tokens.shape:
            raise ValueError(
                f"linearise: the model is frozen at prompts {list(self.tokens.shape)}, and these are "
                f"{list(tokens.shape)}; every prompt has frozen values of its own"
            )
        with torch.no_grad():
            return self.answer(tokens, self.values)

    def answer(self, tokens: Float[Tensor, "some token width"], values: Values) -> Float[Tensor, "some query out"]:
        """The answers with given frozen values, differentiable in the tokens."""
        return self.asked(tokens, frozen_hooks(self.points, values))

    def model_answer(self, tokens: Float[Tensor, "some token width"]) -> Float[Tensor, "some query out"]:
        """What the model itself answers."""
        with torch.no_grad():
            return self.asked(tokens)

    def gates_changed(self, tokens: Float[Tensor, "prompt token width"]) -> float | None:
        """Share of the MLPs' units u whose sign is another than at the prompts; None without frozen MLPs."""
        if not self.points.pre:
            return None
        now = self.asked.values(tokens, self.points.pre)
        changed = [(now[name] > 0) != (self.values[name] > 0) for name in self.points.pre]
        return torch.cat([change.flatten() for change in changed]).double().mean().item()

    def summary(self) -> str:
        """What is frozen, in words."""
        parts = []
        if self.points.scales:
            parts.append(f"the scales of {len(self.points.scales)} norms")
        if self.points.post:
            exact = "exact until a gate changes" if all(self.piecewise) else "first order in each unit"
            parts.append(f"the units of {len(self.points.post)} MLPs ({exact})")
        if self.points.patterns:
            parts.append(f"the attention patterns of {len(self.points.patterns)} layers")
        return f"frozen at each of {len(self.tokens)} prompts: {', '.join(parts) or 'nothing'}"


def frozen_hooks(points: Points, values: Values) -> list[tuple[str, Any]]:
    """Hooks that put frozen values in place of the model's own."""
    current: Values = {}

    def keep(name: str) -> Any:
        return lambda u, hook: current.__setitem__(name, u)

    def unit(pre: str, post: str) -> Any:
        return lambda f, hook: values[post] + values[post + GATE] * (current[pre] - values[pre])

    mlps = zip(points.pre, points.post, strict=True)
    held = [(name, _constant(values[name])) for name in (*points.scales, *points.patterns)]
    return [*held, *(hook for pre, post in mlps for hook in ((pre, keep(pre)), (post, unit(pre, post))))]


def _constant(value: Tensor) -> Any:
    return lambda z, hook: value


def freeze(
    model: Any,
    prompts: Any,
    layout: BlockLayout | None = None,
    parts: Sequence[str] = ("norms", "gates"),
) -> Frozen:
    """The model frozen at prompts.

    Args:
        model: hooked, see `interp.hooks.Hooked`, with `ln….hook_scale` and `mlp.hook_pre`, `mlp.hook_post` where it has
            norms and MLPs.
        prompts: continuous tokens [prompt, token, width], or a value with such `.tokens`. For a model of a vocabulary:
            its residual stream before block 0.
        layout: the meaning of rows and columns; by default the model's own.
        parts: any of "norms", "gates" (of MLPs) and "patterns" (of attention).

    Raises:
        ValueError: no hooks, tokens or weights that are not finite, a part without hook points, a model that does not
            react when the part is edited.
    """
    asked = ask(model, layout)
    tokens = tokens_of(prompts)
    points = points_of(asked.model, parts)
    values = asked.values(tokens, (*points.scales, *points.pre, *points.post, *points.patterns))
    values |= {name + GATE: gate for name, gate in _gates(asked, tokens, points).items()}
    _check_edits(asked, tokens, points, values)
    piecewise = tuple(
        bool((values[post] - values[post + GATE] * values[pre]).abs().max() <= ROUNDING * values[post].abs().max())
        for pre, post in zip(points.pre, points.post, strict=True)
    )
    return Frozen(asked, tokens, points, values, piecewise)


def _gates(asked: Asked, tokens: Tensor, points: Points) -> Values:
    """f′(u₀) of every hidden unit, by differentiating what the model itself does between `hook_pre` and `hook_post`."""
    if not points.pre:
        return {}
    leaves: Values = {}
    ends: Values = {}

    def leaf(name: str) -> Any:
        return lambda u, hook: leaves.setdefault(name, u.detach().requires_grad_())

    def end(name: str) -> Any:
        return lambda f, hook: ends.__setitem__(name, f)

    hooks = [
        hook
        for pre, post in zip(points.pre, points.post, strict=True)
        for hook in ((pre, leaf(pre)), (post, end(post)))
    ]
    with torch.enable_grad():
        asked(tokens, hooks)
        slopes = torch.autograd.grad(
            torch.stack([f.sum() for f in ends.values()]).sum(), [leaves[name] for name in points.pre]
        )
    return dict(zip(points.post, slopes, strict=True))


def _check_edits(asked: Asked, tokens: Tensor, points: Points, values: Values) -> None:
    """Some libraries ignore edits at some points without a word; a part that no edit moves is refused."""
    some = tokens[:2]
    with torch.no_grad():
        clean = asked(some)
        for part, names in points.edited.items():
            edits = [asked(some, [(name, _constant(values[name][:2] / 2))]) for name in names]
            if names and all(torch.equal(edit, clean) for edit in edits):
                raise ValueError(
                    f"linearise: halving the values at {names[0]!r} does not move the answer, so the model ignores "
                    f"edits there or nothing reads them; leave {part!r} out of parts"
                )
