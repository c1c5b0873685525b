"""A comparison as text."""

from collections.abc import Iterable, Mapping

from interp.comparison.control import Controlled
from interp.comparison.judge import Judged
from interp.comparison.measure import Measured
from interp.comparison.metrics import A_LIN, METRICS, A, C
from interp.comparison.result import Comparison

NAME, CELL, NARROW = 27, 12, 8


def to_lines(found: Comparison) -> list[str]:
    """The verdict, a table a read-out, the controls, the notes."""
    return [
        _headline(found),
        f"{found.groups} × {found.prompts} prompts, λ = {found.lam:g}; A, A-lin: relative, C: a cosine of errors;",
        f"smaller is nearer; ±: deviation between the {found.groups}; steps: of A, by layer; c: steps a layer of A-lin",
        *[text for name in found.measured for text in _readout(name, found.measured[name], found.judged[name])],
        *_controls(found),
        *[f"note: {text}" for text in found.notes],
    ]


def _headline(found: Comparison) -> str:
    if not found.names:
        return f"verdict: none (by {found.readout}: no metric that counts accepts a solver)"
    by = found.judged[found.readout][found.metric or A]
    return f"verdict: {found.verdict} (by {found.metric}, {found.readout}){_lead(by, found.names)}"


def _lead(by: Judged, names: tuple[str, ...]) -> str:
    """The margin over the nearest rival that is not named."""
    rivals = [name for name in by.margins if name not in names]
    if not rivals:
        return ""
    nearest = min(rivals, key=lambda name: by.margins[name].mean)
    margin = by.margins[nearest]
    return f"; {nearest} {margin.mean:.2g} [{margin.interval[0]:.2g}, {margin.interval[1]:.2g}] farther"


def _row(label: str, cells: Iterable[str], width: int = CELL) -> str:
    return f"  {label:<{NAME}}" + "".join(f"{cell:>{width}}" for cell in cells)


def _numbers(label: str, values: Iterable[float]) -> str:
    return _row(label, [f"{value:.3g}" for value in values], NARROW)


def _readout(name: str, measured: Measured, judged: Mapping[str, Judged]) -> list[str]:
    still, floor = ({metric: getattr(judged[metric], kind) for metric in METRICS} for kind in ("still", "floor"))
    return [
        "",
        name,
        _row("depth", [str(depth + 1) for depth in range(measured.layers)], NARROW),
        _numbers("distance to KRR", measured.to_krr.mean(0).tolist()),
        _numbers(f"to f (KRR {measured.krr_to_target.mean():.3f})", measured.to_target.mean(0).tolist()),
        _row("solver", [A, A_LIN, "1 − C"]) + "   c   steps",
        *[_row(solver, _cells(judged, solver)) + _map(judged, solver) for solver in measured.solvers],
        _row("no iteration", [f"{still[metric]:.4f}" for metric in METRICS]),
        _row("random network, best", ["·" if floor[metric] is None else f"{floor[metric]:.4f}" for metric in METRICS]),
        *[f"  {'1 − C' if metric == C else metric:<6}names {_named(judged[metric])}" for metric in METRICS],
    ]


def _cells(judged: Mapping[str, Judged], solver: str) -> list[str]:
    return [f"{judged[m].distance[solver]:.4f}±{judged[m].deviation[solver]:.3f}" for m in METRICS]


def _map(judged: Mapping[str, Judged], solver: str) -> str:
    steps = ",".join(map(str, judged[A].assigned[solver].steps))
    return f"{judged[A_LIN].assigned[solver].pace:>4}   {steps}"


def _named(judged: Judged) -> str:
    return judged.verdict + (f": {judged.refused[0]}" if judged.refused else _lead(judged, judged.names))


def _controls(found: Comparison) -> list[str]:
    lines = ["", "controls"]
    for each in found.randoms:
        lines += _control(each, found, "should be none")
    if found.built is not None:
        lines += _control(found.built, found, f"is {found.built.truth}")
    return lines


def _control(control: Controlled, found: Comparison, expected: str) -> list[str]:
    lines = [f"  {control.name} ({expected})"]
    for readout, judged in control.judged.items():
        said = "; ".join(f"{metric}: {judged[metric].verdict}" for metric in METRICS)
        lines.append(f"    {readout:<17}{said}")
        if control.truth is not None and control.truth in judged[A].distance:
            lines += [f"    {'':<17}{text}" for text in _distances(judged, control.truth)]
    return lines


def _distances(judged: Mapping[str, Judged], truth: str) -> list[str]:
    """Of a built network: its own solver's distance and the nearest rival's, by metric."""
    lines = []
    for metric in METRICS:
        by = judged[metric]
        rivals = {name: value for name, value in by.distance.items() if name != truth}
        if not rivals:
            continue
        nearest = min(rivals, key=lambda name: rivals[name])
        text = f"{metric}: {by.distance[truth]:.2g}, {nearest} {rivals[nearest]:.2g}"
        if by.best == truth:
            margin = by.margins[nearest]
            text += f", margin {margin.mean:.2g} [{margin.interval[0]:.2g}, {margin.interval[1]:.2g}]"
        lines.append(text)
    return lines
