"""A report about heads in words and tables."""

import math

from interp.heads.decodable import NAMES, Decodable
from interp.heads.mlps import FEATURES, SETS
from interp.heads.report import HeadFit, HeadsReport
from interp.heads.scores import MEANING, Form
from interp.probes.scores import Score

LITTLE = 0.05  # routes of less weight are left out of the table


def text(report: HeadsReport) -> str:
    """Scores, operators, what is decodable, MLPs, notes."""
    lines = [
        f"true kernel: {report.covariance}, λ = {report.lam:g}; {report.prompts[0]} prompts for scores and operators, "
        f"{report.prompts[1]} for probes and MLPs, a quarter of them held out",
        *_scores(report),
        *_operators(report),
        *_decodable(report),
        *_mlps(report),
        *(f"note: {note}" for note in report.notes),
    ]
    return "\n".join(lines)


def shown(report: HeadsReport) -> list[HeadFit]:
    """The routes that carry weight."""
    return [head for head in report.heads if not head.operator.mass < LITTLE]


def _scores(report: HeadsReport) -> list[str]:
    lines = [
        "pre-softmax scores, a constant a row taken out: R² and bandwidth of each form −‖Δx‖²/2h², −‖Δx‖/ℓ, xᵀx′; of "
        "the best with terms of the key (and of those alone)",
        f"  {'layer':<7}{'route':<18}{'−‖Δx‖²/2':>10}{'h':>7}{'−‖Δx‖':>8}{'ℓ':>7}{'xᵀx′':>8}  "
        f"{'best form, R² [95 %]':<34}{'with key terms':>16}{'untrained':>11}",
    ]
    for head in shown(report):
        fit = head.scores
        squared, distance, product = fit.forms
        untrained = head.untrained_scores.best.score.value
        forms = f"{squared.score.value:>10.3f}{_size(squared)}{distance.score.value:>8.3f}{_size(distance)}"
        keys = f"{fit.with_keys.value:.3f} ({fit.keys.value:.3f})"
        lines.append(
            f"  {_where(head):<7}{head.route:<18}{forms}{product.score.value:>8.3f}  "
            f"{MEANING[fit.best.name] + ', ' + str(fit.best.score):<34}{keys:>16}{untrained:>11.3f}"
        )
    return lines


def _operators(report: HeadsReport) -> list[str]:
    lines = [
        "operator: distance ‖S − D⁻¹K‖/‖D⁻¹K‖ to the true kernel, and to kernels of the best lengthscale",
        f"  {'layer':<7}{'route':<18}{'weight on points':>17}{'true kernel':>24}{'rbf':>8}{'at ℓ':>8}{'laplace':>9}"
        f"{'at ℓ':>8}{'uniform':>9}{'untrained':>11}",
    ]
    for head in shown(report):
        fit = head.operator
        mass = "no shares" if math.isnan(fit.mass) else f"{fit.mass:.3f}"
        lines.append(
            f"  {_where(head):<7}{head.route:<18}{mass:>17}{_interval(fit.true):>24}{fit.best['rbf'].score.value:>8.3f}"
            f"{fit.best['rbf']!s:>8}{fit.best['laplace'].score.value:>9.3f}{fit.best['laplace']!s:>8}{fit.uniform.value:>9.3f}{head.untrained_operator.true.value:>11.3f}"
        )
    if hidden := len(report.heads) - len(shown(report)):
        lines.append(f"  ({hidden} routes of less than {LITTLE:.0%} of the weight are left out)")
    return lines


def _decodable(report: HeadsReport) -> list[str]:
    if not report.decodable:
        return []
    depths = [layer.depth for found in report.decodable.values() for layer in found.report.layers]
    head = "".join(f"{depth:>8}" for depth in range(max(depth for depth in depths if depth is not None) + 1))
    lines = [
        "decodable at the tokens of the context points: R² by depth",
        f"  {'':<12}{head}{'own token':>12}   by depth",
    ]
    for name, found in report.decodable.items():
        cells = "".join(f"{layer.score.value:>8.3f}" for layer in found.report.layers)
        lines.append(f"  {NAMES[name]:<12}{cells}{found.own_token.value:>12.3f}   {_by(found)}")
        for control in ("untrained", "shuffled", "prompt_only"):
            cells = "".join(f"{getattr(layer, control).value:>8.3f}" for layer in found.report.layers)
            lines.append(f"    {control.replace('_', ' '):<10}{cells}")
    return lines


def _by(found: Decodable) -> str:
    if found.report.target == "label":
        return "an entry of the prompt; how far it is kept"
    return "never within 5 % of the best and above controls" if found.by_depth is None else str(found.by_depth)


def _mlps(report: HeadsReport) -> list[str]:
    if not report.mlps:
        return [report.mlp_verdict]
    lines = [
        "MLP outputs at the context points: held-out R² from",
        *(f"  {name}: {meaning}" for name, meaning in FEATURES.items()),
        f"  {'layer':<7}"
        + "".join(f"{name:>26}" if name == "all" else f"{name:>10}" for name in SETS)
        + f"{'shuffled':>10}{'untrained: state':>18}{'cross':>8}   verdict",
    ]
    for fit in report.mlps:
        cells = "".join(
            f"{fit.scores[name]!s:>26}" if name == "all" else f"{fit.scores[name].value:>10.3f}" for name in SETS
        )
        controls = (
            f"{fit.shuffled.value:>10.3f}{fit.untrained['state'].value:>18.3f}{fit.untrained['cross'].value:>8.3f}"
        )
        lines.append(f"  {fit.layer:<7}{cells}{controls}   {fit.verdict}")
    return [*lines, report.mlp_verdict]


def _size(form: Form) -> str:
    """A bandwidth, where the form explains anything."""
    worth = form.bandwidth is not None and form.score.value > LITTLE
    return f"{form.bandwidth:>7.3f}" if worth else f"{'–':>7}"


def _where(head: HeadFit) -> str:
    return f"{head.layer}.{head.head}"


def _interval(score: Score) -> str:
    return f"{score.value:.3f} [{score.interval[0]:.3f}, {score.interval[1]:.3f}]"
