"""A model with norms or MLPs, linearised at prompts of its task; linear attention with norms also unrolled there."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.linearisation import Linearisation, Validity, freeze, linearise, validity
from interp.linearisation.frozen_rule import FrozenRule, mean_scales, unroll_frozen
from interp.linearisation.validity import with_other_queries


@dataclass(frozen=True)
class FreezingError:
    """The frozen rule against the model, relative rms over prompts, by whose scales it is given.

    Args:
        own: the prompt's own scales, the worst prompt. `words`: own scales, with the words alone in place of matrices.
        mean: one scale a row for all prompts, so that the rule is one linear-attention model. `other`: the scales of
            another prompt. `other_query`: its own scales from before its query was swapped for another's.
    """

    own: float
    words: float
    mean: float
    other: float
    other_query: float

    def __str__(self) -> str:
        return "\n".join(
            [
                "error of freezing, frozen rule against model (relative rms over prompts; 1 is as bad as the answer 0)",
                f"  a prompt's own scales              {self.own:.2g} at worst: exact at the prompt, and only there",
                f"  own scales, words only             {self.words:.3g}",
                f"  own scales, its query swapped      {self.other_query:.3g}",
                f"  the mean scales of all prompts     {self.mean:.3g}",
                f"  another prompt's scales            {self.other:.3g}",
            ]
        )


@dataclass(frozen=True)
class FrozenStudy:
    """What can be said of a model with norms or MLPs: a linearisation, its reach, and the frozen rule or why none."""

    linearisation: Linearisation
    validity: Validity
    rule: FrozenRule | None
    freezing: FreezingError | None
    why_no_rule: str | None

    def __str__(self) -> str:
        parts = [str(self.linearisation), str(self.validity)]
        if self.rule is not None:
            return "\n\n".join([str(self.rule), str(self.freezing), *parts])
        return "\n\n".join([*parts, f"no frozen rule: {self.why_no_rule}"])

    def to_dict(self) -> dict[str, Any]:
        explained = None if self.rule is None else list(self.rule.words_explain())
        return {
            "frozen": self.linearisation.frozen.summary(),
            "exact": False,
            "error_at_the_point": self.linearisation.error_at_the_point,
            "derivative_left_out": self.linearisation.left_out,
            "validity": self.validity.to_dict(),
            "words_explain": explained,
            "freezing_error": None if self.freezing is None else vars(self.freezing),
            "why_no_rule": self.why_no_rule,
        }


def study(model: Any, tokens: Float[Tensor, "prompt token width"], seed: int = 0) -> FrozenStudy:
    """Linearise at the prompts, measure how far that holds, and unroll what can be with the scales frozen."""
    linearisation = linearise(model, tokens)
    reach = validity(linearisation, seed=seed)
    try:
        rule, why = unroll_frozen(model), None
    except ValueError as error:
        rule, why = None, str(error).removeprefix("unroll_frozen: ").partition("; interp.linearisation")[0]
    freezing = None if rule is None else freezing_error(rule, model, tokens)
    return FrozenStudy(linearisation, reach, rule, freezing, why)


def freezing_error(rule: FrozenRule, model: Any, tokens: Float[Tensor, "prompt token width"]) -> FreezingError:
    """The rule with its own and with other scales, against the model's forward pass."""
    frozen = freeze(model, tokens, parts=("norms",))
    scales = {name: frozen.values[name] for name in rule.scale_points}
    answer, swapped = frozen.model_answer(frozen.tokens), with_other_queries(frozen.tokens, rule.layout)
    worst = (rule.predict(tokens, scales) - answer).flatten(1).norm(dim=1).max() / _rms(answer)
    by_other = {name: value.roll(1, 0) for name, value in scales.items()}
    return FreezingError(
        own=worst.item(),
        words=_relative(rule.predict(tokens, scales, "words"), answer),
        mean=_relative(rule.predict(tokens, mean_scales(scales)), answer),
        other=_relative(rule.predict(tokens, by_other), answer),
        other_query=_relative(rule.predict(swapped, scales), frozen.model_answer(swapped)),
    )


def _rms(values: Tensor) -> Tensor:
    return values.flatten(1).square().sum(1).mean().sqrt()


def _relative(found: Tensor, known: Tensor) -> float:
    return (_rms(found - known) / _rms(known)).item()
