"""From fits of families to an answer: a name, a tie, or unknown, with the ranking and the margin."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from interp.identification.evidence import Evidence
from interp.identification.fit import Fit
from interp.identification.steps import shrinkage
from interp.unrolling import UpdateRule

# order of convergence by family: named points of EAGLE are decided by their settings
ORDERS = {name: 1 for name in ("gradient descent", "Chebyshev nodes", "scheduled GD", "preconditioned GD")}
POINTS = {"theory": (-1 / 3, 1.0), "T₃": (-4 / 3, 4 / 3)}
NEARBY = 1e-2


@dataclass(frozen=True)
class Ranked:
    """One family: the error of its nearest member, whether it holds the rule, and if not why."""

    family: str
    relative_error: float
    holds: bool
    free: int
    settings: Mapping[str, Any]
    problem: str | None


@dataclass(frozen=True)
class Identification:
    """The answer.

    Args:
        verdict: a family's name, "tie" or "unknown".
        families: the families of the verdict: one, those that tie, or none.
        ranking: those that hold the rule first, the smallest first; then the others by relative error.
        margin: relative error of the best family that does not hold the rule, less that of the best that does; None
            where all hold it or none, or where a rival's member happens to predict as well.
        judged_on: what relative errors are of: predictions on so many prompts, or distances of weights.
        order: of convergence, of the named family; None where a finite depth does not tell.
        degree: of the residual polynomial in AᵀA; None for kernels, where there is none.
        notes: what else a reader should know.
    """

    verdict: str
    families: tuple[str, ...]
    ranking: tuple[Ranked, ...]
    margin: float | None
    judged_on: str
    order: int | None
    degree: int | None
    notes: tuple[str, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of the first family of the verdict; empty for unknown."""
        return self.ranking[0].settings if self.families else {}

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "families": list(self.families), "settings": dict(self.settings)}

    def __str__(self) -> str:
        named = {"tie": f"a tie of {', '.join(self.families)}"}.get(self.verdict, self.verdict)
        margin = "" if self.margin is None else f"; margin to the next family {self.margin:.3g}"
        lines = [f"{named} (judged on {self.judged_on}{margin})", *(f"  {note}" for note in self.notes)]
        lines += [f"  settings: {_short(self.settings)}"] if self.families else []
        lines.append(f"  {'family':<22}{'relative error':>16}  holds")
        for entry in self.ranking:
            lines.append(
                f"  {entry.family:<22}{entry.relative_error:>16.3g}  {'yes' if entry.holds else entry.problem}"
            )
        return "\n".join(lines)


def decide(
    fits: Sequence[Fit],
    depth: int,
    degree: int | None,
    tokens: Tensor | None,
    exact: Tensor | None,
    left_out: float | None = None,
) -> Identification:
    """The smallest family that holds the rule wins; families as small are a tie; none is unknown.

    Args:
        exact: the model's predictions for the tokens.
        left_out: the largest share of a layer's tensors, in norm, that is no word.
    """
    if tokens is not None and exact is not None:
        fits = [_gated(fit, fit.relative_error(tokens, exact)) for fit in fits]
    holding = [fit for fit in fits if fit.problem is None]
    fewest = min((fit.free for fit in holding), default=0)
    winners = [fit for fit in holding if fit.free == fewest]
    ranking, notes = _ranking(fits, tokens, exact), _notes(depth, winners, fits)
    if winners and left_out is not None:
        notes.append(f"the words leave out at most {left_out:.2g} of a layer's tensors")
    verdict = "unknown" if not winners else winners[0].family if len(winners) == 1 else "tie"
    return Identification(
        verdict=verdict,
        families=tuple(fit.family for fit in winners),
        ranking=ranking,
        margin=_margin(ranking, fits),
        judged_on="the weights" if tokens is None else f"{len(tokens)} prompts",
        order=_order(winners),
        degree=degree,
        notes=tuple(notes),
    )


def _gated(fit: Fit, error: float) -> Fit:
    """The fit with a problem if its member's predictions are too far off, whatever its weights say."""
    if fit.problem is None and not error <= fit.error_bound:
        return replace(fit, problem=f"its member's predictions are off by {error:.2g} (bound {fit.error_bound:.2g})")
    return fit


def _ranking(fits: Sequence[Fit], tokens: Tensor | None, exact: Tensor | None) -> tuple[Ranked, ...]:
    entries = [
        Ranked(
            fit.family,
            max(fit.distances) if tokens is None or exact is None else fit.relative_error(tokens, exact),
            fit.problem is None,
            fit.free,
            fit.settings,
            fit.problem,
        )
        for fit in fits
    ]
    return tuple(
        sorted(entries, key=lambda entry: (not entry.holds, entry.free if entry.holds else entry.relative_error))
    )


def _margin(ranking: Sequence[Ranked], fits: Sequence[Fit]) -> float | None:
    """Families on whose edge the rule lies (an η of 0, say) are no rivals in function space, and are left out."""
    apart = {fit.family for fit in fits if fit.excess > 1}
    others = [entry.relative_error for entry in ranking if not entry.holds and entry.family in apart]
    margin = min(others) - ranking[0].relative_error if others and ranking[0].holds else -1.0
    return margin if 0 < margin < float("inf") else None


def _order(winners: Sequence[Fit]) -> int | None:
    if len(winners) != 1:
        return None
    point = named_point(winners[0])
    return {"theory": 2, "T₃": 1}.get(point or "", ORDERS.get(winners[0].family))


def named_point(fit: Fit) -> str | None:
    """Theory or T₃, if the settings of an EAGLE fit are within 1 % of theirs."""
    if fit.family != "EAGLE" or "eta" not in fit.settings:
        return None
    for name, (eta, gamma) in POINTS.items():
        if abs(fit.settings["eta"] / eta - 1) < NEARBY and abs(fit.settings["gamma"] / gamma - 1) < NEARBY:
            return name
    return None


def effective_degree(rule: UpdateRule, evidence: Sequence[Evidence]) -> int:
    """(3^L − 1)/2 where layers condition A, L where none does: x words of relative weight above the tolerance."""
    y = rule.layout.readout
    conditions = any(
        layer.distance({key: value for key, value in layer.coefficients.items() if key[1].into == y}) > layer.tolerance
        for layer in evidence[:-1]
    )
    return (3**rule.depth - 1) // 2 if conditions else rule.depth


def _notes(depth: int, winners: Sequence[Fit], fits: Sequence[Fit]) -> list[str]:
    notes = []
    if len(winners) > 1:
        notes.append(f"these coincide at depth {depth}; a deeper model of the same kind would tell them apart")
    if len(winners) == 1 and (point := named_point(winners[0])):
        notes.append(f"the step sizes are those of {point}")
    if len(winners) == 1 and winners[0].family == "EAGLE" and "eta" in winners[0].settings:
        notes.append(_other_branch(winners[0].settings))
    if not winners and fits:
        nearest = min(fits, key=lambda fit: max(fit.distances))
        notes.append(f"nearest is {nearest.family}, but {nearest.problem}")
    if not fits:
        notes.append("no family is defined for these blocks and visibilities")
    return notes


def _other_branch(settings: Mapping[str, Any]) -> str:
    """The constants beyond |η| = 4/3 that shrink ‖A_l‖ as fast, and so give the same weights for another ‖A_0‖."""
    other = 1 + shrinkage(settings["eta"])
    ratio = other / -settings["eta"]
    norm = settings["initial norm"] * ratio**0.5
    return (
        f"the weights hold for ‖A_0‖ = {settings['initial norm']:.4g}; for ‖A_0‖ = {norm:.4g} the same weights are "
        f"η = {-other:.4g}, γ = {settings['gamma'] * ratio:.4g}"
    )


def _short(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return f"{len(value)} matrices of {len(value[0])} rows" if isinstance(value[0][0], list) else "a matrix"
    if isinstance(value, list):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
