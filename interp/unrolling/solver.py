"""From a rule to a solver of the same iterates."""

from interp.solvers.extracted_rule import ExtractedRule
from interp.unrolling.rule import UpdateRule
from interp.unrolling.spectral import closed_form, obstacle

UNITS = ("own", "norm")


def to_solver(rule: UpdateRule, units: str = "own") -> ExtractedRule:
    """The rule's closed form as a solver; see `UpdateRule.solver`."""
    if units not in UNITS:
        raise ValueError(f"solver: units={units!r} is unknown; known units: {', '.join(UNITS)}")
    form = closed_form(rule)
    if form is None:
        raise ValueError(f"solver: the rule has no closed form to run: {obstacle(rule)}")
    norms = None
    if units == "norm":
        if rule.function is None:
            raise ValueError("solver: units='norm' needs ‖A_l‖ as measured on prompts; pass prompts to unroll")
        norms = tuple(median for median, _ in rule.function.context_norm)
    return ExtractedRule(form.eta, form.gamma, form.sign, form.per_n, norms)
