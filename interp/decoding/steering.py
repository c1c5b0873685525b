"""Does the model use what a probe reads: write along the probe's direction, and along random ones, and compare.

A probe that decodes w from a hook says along which direction of the activations w lies. If the model uses w there, a
move along it that stands for δ moves the prediction towards B δ, and moves of the same size in random directions do
not. A probe for which that is not so reads and does not cause, however high its score.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.decoding.forward import Forward, forward_of, read_stream
from interp.decoding.moves import gains
from interp.hooks import check_names, hook_name, run_with_hooks
from interp.layout import BlockLayout


@dataclass(frozen=True)
class Steering:
    """The effect of a move at a hook, beside that of random moves of the same size.

    Args:
        gain: the share of the expected move that reaches the prediction, ⟨move, expected⟩ / ‖expected‖², median.
        controls: the same of the random moves.
        expected_gain: what an algebra says the gain is, where there is one; 1 if nothing came after.
    """

    hook: str
    gain: float
    controls: tuple[float, ...]
    expected_gain: float | None = None

    @property
    def causes(self) -> bool:
        """Is the gain above those of all random moves, in size too."""
        return self.gain > max(abs(gain) for gain in self.controls)

    @property
    def verdict(self) -> str:
        return "reads and causes" if self.causes else "reads but does not cause"

    def __str__(self) -> str:
        largest = max(abs(gain) for gain in self.controls)
        said = "" if self.expected_gain is None else f", where the algebra says {self.expected_gain:.3g}"
        return (
            f"{self.hook}: {self.verdict}: {self.gain:.3g} of the move reaches the prediction{said}, "
            f"at most {largest:.3g} of {len(self.controls)} random ones"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "controls": list(self.controls), "causes": self.causes, "verdict": self.verdict}


def steer(
    model: Any,
    prompts: Any,
    hook: str,
    direction: Float[Tensor, "width"] | Float[Tensor, "prompt width"] | Float[Tensor, "prompt token width"],
    expected: Float[Tensor, "prompt query out"],
    *,
    tokens: slice | None = None,
    controls: int = 19,
    expected_gain: float | None = None,
    seed: int = 0,
    layout: BlockLayout | None = None,
) -> Steering:
    """Add a direction to the activations at a hook, and measure how much of an expected move the prediction makes.

    Args:
        direction: in the activations of the hook, [batch, token, width]; one for all, one a prompt, or one a token.
        expected: the move of the prediction that it stands for, as B δ.
        tokens: where it is added; by default the query rows.
        controls: random directions of the same norm, `seed`.

    Raises:
        ValueError: no such hook, one that does not fire or holds no rows of that width, a direction that is 0 or not
            finite, no rows among `tokens`, an expected move that is 0, not finite or of another shape than the answers,
            too few controls, and what `decode` refuses.
    """
    forward = forward_of(model, prompts, layout)
    check_names(forward.model, [hook])
    if controls < 1:
        raise ValueError(f"steer: controls={controls} must be at least 1")
    _check_expected(forward, expected)
    where = slice(-forward.layout.n_query, None) if tokens is None else tokens
    _check_direction(forward, direction, _rows_of(forward, where))
    direction, generator = direction.to(forward.u), torch.Generator().manual_seed(seed)
    moves = [direction, *(_random(direction, generator) for _ in range(controls))]
    clean = _moved(forward, hook, torch.zeros_like(direction), where)
    found = [gains(_moved(forward, hook, move, where) - clean, expected.to(clean)).median().item() for move in moves]
    if not all(map(math.isfinite, found)):
        raise ValueError(f"steer: the moved activations at {hook} overflow; pass a smaller direction")
    return Steering(hook, found[0], tuple(found[1:]), expected_gain)


def _check_expected(forward: Forward, expected: Tensor) -> None:
    shape = [len(forward.u), forward.layout.n_query, forward.C.shape[2]]
    if list(expected.shape) != shape:
        raise ValueError(f"steer: the expected move is {list(expected.shape)}, the answers are {shape}")
    if not expected.isfinite().all():
        raise ValueError("steer: the expected move holds NaN or inf; leave those prompts out")
    if expected.flatten(1).norm(dim=1).min() == 0:
        raise ValueError("steer: the expected move of a prompt is 0, so no share of it can be measured; leave it out")


def _rows_of(forward: Forward, tokens: slice) -> int:
    """How many rows a slice holds; one that holds none, or reaches beyond the prompt, would move less than it says."""
    count, bounds = forward.u.shape[1], [bound for bound in (tokens.start, tokens.stop) if bound is not None]
    if not range(count)[tokens] or any(not -count <= bound <= count for bound in bounds):
        raise ValueError(
            f"steer: tokens={tokens} holds no rows or reaches beyond the {count} of a prompt; the context is rows 0 to "
            f"{forward.n - 1}, and the query rows follow"
        )
    return len(range(count)[tokens])


def _check_direction(forward: Forward, direction: Tensor, rows: int) -> None:
    """A direction that moves nothing would be called one that does not cause."""
    given, fitting = list(direction.shape), [len(forward.u), rows]
    if not 1 <= direction.ndim <= 3 or any(
        size not in (1, fit) for size, fit in zip(given[:-1], fitting, strict=False)
    ):
        raise ValueError(f"steer: the direction is {given}; pass [width], [{fitting[0]}, width] or {fitting} × width")
    if not direction.isfinite().all():
        raise ValueError("steer: the direction holds NaN or inf; pass a finite one")
    moves = direction[None] if direction.ndim == 1 else direction
    if (moves.flatten(1).norm(dim=1) == 0).any():
        raise ValueError("steer: the direction of a prompt is 0, so it moves nothing; leave it out")


def _random(direction: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(direction.shape, generator=generator, dtype=direction.dtype).to(direction)
    return noise * direction.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)


def _moved(forward: Forward, hook: str, move: Tensor, where: slice) -> Float[Tensor, "prompt query out"]:
    """The predictions with the move added at the hook."""
    last: list[Tensor] = []
    fired: list[bool] = []

    def add(value: Tensor, hook: Any) -> Tensor:
        fired.append(True)
        if value.ndim != 3 or value.shape[-1] != move.shape[-1]:
            raise ValueError(
                f"steer: the hook {hook.name} holds {list(value.shape)} and the direction is {list(move.shape)}; "
                "steer at a hook of the residual stream or of a layer's output, with a direction of its width"
            )
        out = value.clone()
        out[:, where] += move if move.ndim != 2 else move[:, None]
        return out

    final = hook_name("resid_post", forward.model.cfg.n_layers - 1)
    hooks = [(hook, add), (final, lambda z, hook: last.append(z))]
    with torch.no_grad():
        run_with_hooks(forward.model, forward.u @ forward.layout.basis.T.to(forward.u), hooks)
        if not fired:
            raise ValueError(f"the hook point {hook!r} exists but did not fire in this forward pass")
        return read_stream(forward.model, forward.layout, last[-1])
