"""Is a kernel rule preconditioned Richardson iteration: its columns and numbers, or the layer that is not.

    layer 0      p by attention to the flag; c = p y/μ, w = μ/p, α = ω c
    then         s = P⁻¹K α by attention; α += ω (c − s − (λ/μ) p α); out = s w;  s = 0

Columns are recognised by what is written to them, not by their names.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interp.unrolling.kernel_operator import KernelLayer, KernelRule
from interp.unrolling.kernel_operator_mlp import Term, label
from interp.visibility import describe_rule

NEAR = 2e-2  # relative, of coefficients


@dataclass(frozen=True)
class RichardsonForm:
    """α ← α + ω P⁻¹(y − (K + λI) α) for `steps` steps, P = D + μI, K of bandwidth h; `out` is read out of s w.

    `tracked`: every layer writes the answer of its time, not the last one alone. `roles`: which column is which.
    """

    omega: float
    lam: float
    bandwidth: float
    shift: float
    steps: int
    tracked: bool
    roles: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "roles": dict(self.roles)}

    def __str__(self) -> str:
        step = "" if abs(self.omega - 1) < 1e-3 else f"{self.omega:.4g} "
        ridge = "" if abs(self.lam / self.shift - 1) < NEAR else f"{self.lam / self.shift:.4g} "
        return (
            f"α ← α + {step}(c − P⁻¹K α − {ridge}p ⊙ α), {self.steps} steps from 0, then Σ_j k(x_q, x_j) α_j\n"
            f"  K = exp(−‖x − x'‖²/2h²), h = {self.bandwidth:.4g}; P = D + {self.shift:.4g} I, D = diag(K1); "
            f"p = {self.shift:.4g} P⁻¹1, c = P⁻¹y; λ = {self.lam:.4g}"
        )


class NotRichardson(ValueError):
    """Which layer is something else, and what it is."""


def richardson_form(rule: KernelRule) -> RichardsonForm:
    """The iteration that the rule is.

    Raises:
        NotRichardson: the first layer that is no part of it, in one sentence.
    """
    if len(rule.layers) < 2:
        raise NotRichardson("layer 0: one layer can read p or use it, not both")
    for head, sees in enumerate(rule.layout.head_visibility(len(rule.layers[0].heads))):
        if (sees.context, sees.query) != ("context", "context"):
            raise NotRichardson(
                f"layer 0: head {head} lets context rows see {describe_rule(sees.context)} and queries "
                f"{describe_rule(sees.query)}, so that K is another matrix"
            )
    h, shift = _similarity(rule)
    roles = _roles(rule)
    y, p = roles["y"], roles["p"]
    first = rule.layers[0]
    _expect(0, first, roles["c"], {_pair(y, p): 1 / shift})
    _expect(0, first, roles["w"], {("1/", p): shift})
    _only(0, first, {roles["c"], roles["w"], roles["alpha"]})
    omega = shift * _terms(0, first, roles["alpha"]).get(_pair(y, p), 0.0)
    _expect(0, first, roles["alpha"], {_pair(y, p): omega / shift})
    if not 0 < omega < 2:
        raise NotRichardson(f"layer 0: ω = {omega:.4g} is not between 0 and 2")
    lam = _steps(rule, roles, omega, shift)
    last = len(rule.layers) - 1
    tracked = all(roles["out"] in layer.mlp for layer in rule.layers[1:]) and last > 1
    return RichardsonForm(omega, lam, h, shift, last, tracked, roles)


def named(rule: KernelRule) -> dict[str, Any]:
    """The form as plain values, or {"why_not": …}."""
    try:
        return richardson_form(rule).to_dict()
    except NotRichardson as error:
        return {"why_not": str(error)}


def _similarity(rule: KernelRule) -> tuple[float, float]:
    """h and μ, the same in all layers."""
    found = []
    for index, layer in enumerate(rule.layers):
        head = layer.heads[0]
        if len(layer.heads) > 1 or head.bandwidth is None or head.shift is None:
            raise NotRichardson(f"layer {index}: its attention is not one Gaussian with a token of constant score")
        found.append((head.bandwidth, head.shift))
        if not all(_near(a, b) for a, b in zip(found[-1], found[0], strict=True)):
            raise NotRichardson(
                f"layer {index}: h = {head.bandwidth:.4g}, μ = {head.shift:.4g}, and before {found[0][0]:.4g}, "
                f"{found[0][1]:.4g}"
            )
    return found[0]


def _roles(rule: KernelRule) -> dict[str, str]:
    """Columns by what is moved to and from them."""
    moves = [_move(index, layer) for index, layer in enumerate(rule.layers)]
    flag, p = moves[0]
    if flag != rule.layers[0].heads[0].columns.flag:
        raise NotRichardson(f"layer 0: its attention moves {flag}, not the mark of the first token")
    alpha, s = moves[1]
    for index, move in enumerate(moves[1:], start=1):
        if move != (alpha, s):
            raise NotRichardson(f"layer {index}: its attention moves {move[0]} to {move[1]}, and before {alpha} to {s}")
    mlp = rule.layers[0].mlp
    c = next((name for name, found in mlp.items() if name != alpha and _is_product(found.terms, p)), None)
    w = next((name for name, found in mlp.items() if set(found.terms) == {("1/", p)}), None)
    if c is None or w is None or alpha not in mlp:
        raise NotRichardson(f"layer 0: its MLP does not write a multiple of {p} ⊙ a label, 1/{p} and a first {alpha}")
    product = next(iter(mlp[c].terms))
    y = product[0] if product[1] == p else product[1]
    return {"y": y, "p": p, "c": c, "w": w, "alpha": alpha, "s": s, "out": rule.layout.readout}


def _move(index: int, layer: KernelLayer) -> tuple[str, str]:
    moved = layer.heads[0].coefficients
    if len(layer.heads[0].moved) != 1 or len(moved) != 1 or not _near(next(iter(moved.values())), 1.0):
        raise NotRichardson(f"layer {index}: its attention does not move one column to another with coefficient 1")
    return next(iter(moved))


def _steps(rule: KernelRule, roles: Mapping[str, str], omega: float, shift: float) -> float:
    """Check layers 1 …; λ, the same in all of them (μ where no layer says)."""
    last, lam = len(rule.layers) - 1, None
    alpha, s, out = roles["alpha"], roles["s"], roles["out"]
    decay, answer = _pair(roles["p"], alpha), _pair(roles["w"], s)
    for index, layer in enumerate(rule.layers[1:], start=1):
        _only(index, layer, {alpha, s, out})
        if index < last or alpha in layer.mlp:
            found = _terms(index, layer, alpha)
            mine = -found.get(decay, 0.0) * shift / omega
            lam = mine if lam is None else lam
            if lam <= 0:
                raise NotRichardson(f"layer {index}: λ = {lam:.4g} is not positive")
            _expect(index, layer, alpha, {(roles["c"],): omega, (s,): -omega, decay: -omega * lam / shift})
        if index < last:
            _expect(index, layer, s, {(s,): -1.0})
        if index == last or out in layer.mlp:
            kept = {key: value for key, value in _terms(index, layer, out).items() if key != (out,)}
            _expect_terms(index, out, kept, {answer: 1.0}, layer)
            _overwrites(rule, index, out)
    return shift if lam is None else lam


def _overwrites(rule: KernelRule, index: int, out: str) -> None:
    """A column that was written before must be taken away first."""
    written = any(out in layer.mlp for layer in rule.layers[:index])
    if written and not _near(rule.layers[index].mlp[out].terms.get((out,), 0.0), -1.0):
        raise NotRichardson(f"layer {index}: its answer is added to the one before, not put in its place")


def _only(index: int, layer: KernelLayer, allowed: set[str]) -> None:
    if more := sorted(set(layer.mlp) - allowed):
        raise NotRichardson(f"layer {index}: its MLP writes to {more[0]}, which has no part in it")


def _terms(index: int, layer: KernelLayer, name: str) -> Mapping[Term, float]:
    if name not in layer.mlp:
        raise NotRichardson(f"layer {index}: its MLP writes nothing to {name}")
    found = layer.mlp[name]
    if not found.named:
        raise NotRichardson(f"layer {index}: terms leave out {found.residual:.2g} of what its MLP writes to {name}")
    return {(_pair(*term) if len(term) == 2 and term[0] != "1/" else term): c for term, c in found.terms.items()}


def _expect(index: int, layer: KernelLayer, name: str, wanted: Mapping[Term, float]) -> None:
    _expect_terms(index, name, _terms(index, layer, name), wanted, layer)


def _expect_terms(
    index: int, name: str, found: Mapping[Term, float], wanted: Mapping[Term, float], layer: KernelLayer
) -> None:
    if set(found) != set(wanted) or not all(_near(found[term], value) for term, value in wanted.items()):
        raise NotRichardson(f"layer {index}: {name} += {sum_of(layer.mlp[name].terms)}, and not {sum_of(wanted)}")


def sum_of(terms: Mapping[Term, float]) -> str:
    """1 c − 1 s − 0.5 p ⊙ alpha."""
    parts = [f"{'−' if c < 0 else '+'} {abs(c):.4g} {label(term)}" for term, c in terms.items()]
    return " ".join(parts).removeprefix("+ ") or "0"


def _pair(a: str, b: str) -> Term:
    return tuple(sorted((a, b)))


def _is_product(terms: Mapping[Term, float], p: str) -> bool:
    return len(terms) == 1 and all(len(term) == 2 and term[0] != "1/" and p in term for term in terms)


def _near(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= NEAR * abs(wanted)
