"""Removing a word of a linear rule, and gradient descent beside it.

EAGLE has two words a layer, z_x S_xx → x (coefficient η: it conditions A) and z_x S_xy → y (−γ: it steps). Without the
conditioning word A never changes, so what is left is scheduled gradient descent with the same γ_l (MATH §4, η = 0).
As learned, that descent diverges: γ_l is sized for an A_l that has shrunk. In units of the A that it meets,
γ_l ‖A_l‖²/‖A_0‖², it need not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.ablate import tokens_of
from interp.ablation.intervention import chosen
from interp.ablation.runs import Runs
from interp.ablation.words import CONDITIONING, remove_word, two_word_core, without_word, word_named
from interp.stats import central_rms, pooled_errors
from interp.unrolling import closed_form, layout_of, unroll
from interp.unrolling.rule import UpdateRule
from interp.unrolling.spectral import input_block, two_words, xy_slices

DESCENT, MENDED = "gradient descent, γ_l", "gradient descent, γ_l ‖A_l‖²/‖A_0‖²"
DIVERGED = 10.0
SAME = 1e-8


def scheduled_descent(
    A: Float[Tensor, "prompt n d"], C: Float[Tensor, "prompt n out"], gamma: Sequence[float] | Tensor
) -> Iterator[Float[Tensor, "prompt d out"]]:
    """w_0 = 0, then w ← w − γ_l (AᵀA w − AᵀC), with γ [layer] or [layer, prompt]; it may diverge."""
    w = torch.zeros_like(A.mT @ C)
    steps = torch.as_tensor(gamma, dtype=A.dtype, device=A.device)
    for step in steps:
        yield w
        w = w - step.reshape(-1, 1, 1) * (A.mT @ (A @ w - C))
    yield w


@dataclass(frozen=True)
class WordAblation:
    """What removing a word does.

    Relative errors are ‖difference‖ over the rms of the answers, rms over the central 99 % of prompts.

    Args:
        word, layers: what was left out, and where.
        eta, gamma: the rule's two coefficients by layer; empty where it has no closed form.
        shrinkage: median over prompts of ‖A_l‖²/‖A_0‖² by layer, with the word in place.
        errors: name → relative error to the target of: model, rule (two-word core where there is one), rule and model
            without the word, scheduled gradient descent with γ_l, and with γ_l ‖A_l‖²/‖A_0‖².
        rule_to_descent: largest relative distance over prompts of the rule without the word to that descent; None
            where another word was removed or the rule has no closed form.
        model_to_descent: central rms of the model's, without the word.
    """

    word: str
    layers: tuple[int, ...]
    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    shrinkage: tuple[float, ...]
    errors: dict[str, float]
    rule_to_descent: float | None
    model_to_descent: float | None

    @property
    def remark(self) -> str:
        """What to make of it, in a sentence or two."""
        if self.rule_to_descent is None:
            return "no closed form to compare with"
        raw, mended = self.errors[DESCENT], self.errors[MENDED]
        text = f"without the word the rule is gradient descent with the same γ_l (off by {self.rule_to_descent:.2g})"
        if not raw > DIVERGED:
            return f"{text}; that descent does not diverge here"
        return (
            f"{text}; that descent diverges (relative error {raw:.3g}), because γ_l assumes an A_l that has shrunk: "
            f"with γ_l ‖A_l‖²/‖A_0‖² in its place the error is {mended:.3g}"
        )

    def __str__(self) -> str:
        lines = [f"word removed: {self.word}, in layers {', '.join(map(str, self.layers))}"]
        if self.gamma:
            for name, values in (("η_l", self.eta), ("γ_l", self.gamma), ("‖A_l‖²/‖A_0‖²", self.shrinkage)):
                lines.append(f"  {name.ljust(15)}" + "".join(f"{value:>12.4g}" for value in values))
        width = max(map(len, self.errors))
        lines.append("relative error of the prediction")
        lines += [f"  {name.ljust(width)}  {value:.4g}" for name, value in self.errors.items()]
        if self.model_to_descent is not None:
            why = "" if self.model_to_descent <= SAME else " (not 0: the model has more than two words)"
            lines.append(f"model without the word to gradient descent with γ_l: {self.model_to_descent:.3g}{why}")
        return "\n".join([*lines, self.remark])

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "layers": list(self.layers),
            "eta": list(self.eta),
            "gamma": list(self.gamma),
            "shrinkage": list(self.shrinkage),
            "relative_errors": dict(self.errors),
            "rule_to_descent": self.rule_to_descent,
            "model_to_descent": self.model_to_descent,
            "remark": self.remark,
        }


def ablate_word(
    model: Any,
    prompts: Any,
    word: str = CONDITIONING,
    layers: Iterable[int] | None = None,
    target: Tensor | None = None,
) -> WordAblation:
    """Remove a word from a linear-attention model and from its two-word core, and compare with gradient descent.

    Args:
        prompts: tokens, or a value with `.tokens` (and `.target`).
        word: "conditioning", "step", or a word's text.

    Raises:
        ValueError: the model is no linear attention, it has no such word, prompts without a target.
    """
    tokens = tokens_of(model, prompts)
    target = getattr(prompts, "target", None) if target is None else target
    if target is None:
        raise ValueError("ablate_word: the prompts have no target; pass target=… to compare with")
    whole = unroll(model, layout_of(model, None))
    removed, where = word_named(whole, word), chosen("layer", layers, whole.depth)
    core = two_word_core(whole) if closed_form(whole) is not None else whole
    bare = without_word(core, removed, where)
    runs = Runs(model, tokens)
    answers = {
        "model": runs.clean,
        "rule": core.predict(tokens),
        "model without the word": runs.predictions(remove_word(model, whole, removed, where)),
        "rule without the word": bare.predict(tokens),
    }
    form = closed_form(whole)
    if form is None or removed != two_words(whole)[0] or where != tuple(range(whole.depth)):
        return WordAblation(str(removed), where, *_schedule(form), (), _errors(answers, target), None, None)
    shrinkage = _shrinkage(core, tokens)
    answers |= {
        DESCENT: _descend(core, tokens, lambda gamma: gamma[:, None]),
        MENDED: _descend(core, tokens, lambda gamma: gamma[:, None] * shrinkage),
    }
    gap = pooled_errors(answers["rule without the word"], answers[DESCENT]).max().item()
    distance = central_rms(pooled_errors(answers["model without the word"], answers[DESCENT]))
    median = tuple(shrinkage.median(1).values.tolist())
    return WordAblation(str(removed), where, *_schedule(form), median, _errors(answers, target), gap, distance)


def _schedule(form: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return ((), ()) if form is None else (form.eta, form.gamma)


def _errors(answers: dict[str, Tensor], target: Tensor) -> dict[str, float]:
    return {name: central_rms(pooled_errors(answer, target.to(answer))) for name, answer in answers.items()}


def _context(rule: UpdateRule, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and C of the prompts, A and C over √n where coefficients are per n."""
    u, x_y = rule.layout.coordinates(tokens), xy_slices(rule.layout)
    n = rule.layout.n_context(u.shape[1])
    scale = n**0.5 if rule.per_n else 1.0
    return u[:, :n, x_y[0]] / scale, u[:, n:, x_y[0]], u[:, :n, x_y[1]] / scale


def _descend(
    rule: UpdateRule, tokens: Tensor, schedule: Callable[[Float[Tensor, "layer"]], Tensor]
) -> Float[Tensor, "prompt query out"]:
    """B w of gradient descent along a schedule made of γ."""
    A, B, C = _context(rule, tokens)
    form = closed_form(rule)
    gamma = torch.tensor(form.gamma if form is not None else (), dtype=A.dtype, device=A.device)
    *_, w = scheduled_descent(A, C, schedule(gamma))
    return -rule.layout.sign * B @ w


def _shrinkage(rule: UpdateRule, tokens: Tensor) -> Float[Tensor, "layer prompt"]:
    """‖A_l‖²/‖A_0‖², spectral norms, of each prompt along the whole rule."""
    at, n = rule.layout.slices[input_block(rule.layout)], rule.layout.n_context(tokens.shape[1])
    norms = torch.stack([torch.linalg.matrix_norm(z[:, :n, at], ord=2) for z in list(rule.states(tokens))[:-1]])
    return (norms / norms[0]).square()
