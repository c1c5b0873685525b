"""Linear probes decode w, XᵀY and XᵀX from a softmax transformer, w in late layers; of linear attention, second moments
tell w and single tokens do not."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.plots import draw_curves
from interp.probes import LayerScore, ProbeReport, Reading, probe_all
from models import zoo

SOFTMAX, LINEAR = "linreg-softmax", "eagle-d10"
TARGETS = ("w", "xty", "hessian")
NAMES = {"w": "w", "xty": "XᵀY", "hessian": "XᵀX"}
PROMPTS, FULL = 2000, 20000
POOLED, UNIT, SECOND, TOKEN = (Reading(kind) for kind in ("pooled", "queries", "second-moment", "token"))
EQUAL = "probe of the mean of the context rows: the model has no positions, so that no row deserves another weight"


def measure(settings: Settings, prompts: int | None = None) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    softmax = _probe(SOFTMAX, TARGETS, POOLED, count, settings)
    unit = _probe(SOFTMAX, TARGETS, UNIT, count, settings)
    query = _probe(SOFTMAX, ("w",), TOKEN, count, settings)["w"]
    moments = _probe(LINEAR, ("w",), SECOND, count, settings)["w"]
    rows = _probe(LINEAR, ("w",), UNIT, count, settings)["w"]
    token = _probe(LINEAR, ("w",), TOKEN, count, settings)["w"]
    where = f"{SOFTMAX}, {count} prompts, a quarter held out, seed {settings.seed}; {EQUAL}"
    linear = f"{LINEAR}, {count} prompts, a quarter held out, seed {settings.seed}"
    measurements = {name: excess(report, f"{best(unit[name])}; {where}") for name, report in softmax.items()}
    measurements |= {
        "late": late(softmax["w"], f"{best(unit['w'])}; {where}"),
        "order": order(softmax["w"], softmax["xty"], f"{best(unit['w'])}, {best(unit['xty'])}; {where}"),
        "linear-attention": excess(moments, f"from Σ z zᵀ over the context rows; {best(rows)}; {linear}"),
        "parity": parity(token, f"{linear}; the query row"),
    }
    reports = {
        **{f"{SOFTMAX}, {NAMES[name]}, mean of the context rows": report for name, report in softmax.items()},
        **{f"{SOFTMAX}, {NAMES[name]}, d unit queries": report for name, report in unit.items()},
        f"{SOFTMAX}, w, query row": query,
        f"{LINEAR}, w, second moments of the context rows": moments,
        f"{LINEAR}, w, d unit queries": rows,
        f"{LINEAR}, w, query row": token,
    }
    details = {name: report.to_dict() for name, report in reports.items()}
    return Findings(measurements, _table(reports), details, partial(_draw, softmax, unit))


def _probe(
    name: str, targets: tuple[str, ...], reading: Reading, count: int, settings: Settings
) -> dict[str, ProbeReport]:
    sample = zoo.prompts(name, count, seed=settings.seed, device=settings.device)
    model = zoo.load(name).double().to(settings.device)
    return probe_all(model, sample, targets, reading=reading, seed=settings.seed)


def largest_control(layer: LayerScore) -> tuple[str, float, tuple[float, float]]:
    """The control with the highest R² at a layer: its name, R² and interval."""
    prompt = f"{layer.prompt_features} of the prompt alone" if layer.prompt_features else "prompt alone"
    controls = {"shuffled": layer.shuffled, "untrained": layer.untrained, prompt: layer.prompt_only}
    name = max(controls, key=lambda name: controls[name].value)
    return name, controls[name].value, controls[name].interval


def excess(report: ProbeReport, note: str, layer: LayerScore | None = None) -> Measurement:
    """R² at the best depth, or at a given one, less the largest control; the interval takes the worst of both ends."""
    layer = layer or report.best
    name, control, (control_low, control_high) = largest_control(layer)
    low, high = layer.score.interval
    text = f"depth {layer.depth}: R² {layer.score.value:.3f}, {name} {control:.3f}; {note}"
    return Measurement(layer.score.value - control, (low - control_high, high - control_low), text)


def best(report: ProbeReport) -> str:
    """What the rows of unit queries tell, in words."""
    layer = report.best
    name, control, _ = largest_control(layer)
    found = f"{NAMES[report.target]} with R² {layer.score.value:.3f} at depth {layer.depth} ({name} {control:.3f})"
    return f"the d rows of unit queries, which hold answers x·w and not w, tell {found}"


def late(report: ProbeReport, note: str) -> Measurement:
    """The depth of the best R² over the number of layers."""
    scores = ", ".join(f"{layer.score.value:.3f}" for layer in report.layers)
    return Measurement.exact(_depth(report) / (len(report.layers) - 1), f"R² of w by depth: {scores}; {note}")


def order(w: ProbeReport, xty: ProbeReport, note: str) -> Measurement:
    """Layers from the best depth of XᵀY to that of w."""
    text = f"XᵀY best at depth {_depth(xty)}, w at {_depth(w)}; {note}"
    return Measurement.exact(_depth(w) - _depth(xty), text)


def parity(report: ProbeReport, note: str) -> Measurement:
    """The best R² over depths as it is."""
    best = report.best
    return Measurement(best.score.value, best.score.interval, f"depth {best.depth}; {note}")


def _depth(report: ProbeReport) -> int:
    assert report.best.depth is not None
    return report.best.depth


def _table(reports: Mapping[str, ProbeReport]) -> str:
    return "\n\n".join(f"{name}\n{report}" for name, report in reports.items())


def _draw(softmax: Mapping[str, ProbeReport], unit: Mapping[str, ProbeReport], path: Path) -> None:
    def curve(scores: Iterable[float]) -> tuple[list[int], list[float]]:
        found = list(scores)
        return list(range(len(found))), found

    def of(report: ProbeReport) -> tuple[list[int], list[float]]:
        return curve(layer.score.value for layer in report.layers)

    draw_curves(
        {
            **{f"{NAMES[name]}, mean of the context rows": of(report) for name, report in softmax.items()},
            **{f"{NAMES[name]}, unit queries": of(report) for name, report in unit.items()},
            "w, mean of the context rows, largest control": curve(largest_control(x)[1] for x in softmax["w"].layers),
            "w, unit queries, largest control": curve(largest_control(x)[1] for x in unit["w"].layers),
        },
        path,
        title=f"What linear probes of {SOFTMAX} read",
        x="depth",
        y="held-out R²",
        log_y=False,
    )
