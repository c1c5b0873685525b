"""Along training, the error of the model falls when its layers take the form of EAGLE's two words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.eagle_form import eagle_form, layer_fidelity
from analyses.claims.plots import draw_curves
from interp import unroll
from models import zoo
from models.evaluation import evaluate
from models.transformer import HookedTransformer

MODEL, PROMPTS = "eagle-d10", 256
ENOUGH, NEAR_FINAL = 0.99, 10.0


@dataclass(frozen=True)
class Moment:
    """The model at one step of its training."""

    step: int
    error: float
    explained: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.explained)


def measure(settings: Settings, prompts: int = PROMPTS) -> Findings:
    moments = trajectory(zoo.snapshots(MODEL), prompts, settings.seed)
    final = moments[-1]
    rule_at = next((m.step for m in moments if m.least >= ENOUGH), None)
    error_at = next(m.step for m in moments if m.error <= NEAR_FINAL * final.error)
    measurements = {
        "explained": Measurement.exact(final.least, f"{MODEL}, after {final.step} steps, {prompts} prompts"),
        "together": Measurement.exact(
            float("inf") if rule_at is None else rule_at / error_at,
            f"{MODEL}, {len(moments)} snapshots evenly spaced in log(step), 1.5 times apart: the rule is there at step "
            f"{rule_at}, the error within {NEAR_FINAL:g} times its final {final.error:.2g} at step {error_at}",
        ),
    }
    return Findings(measurements, _table(moments), {"moments": [asdict(m) for m in moments]}, partial(_draw, moments))


def trajectory(snapshots: Mapping[int, HookedTransformer], prompts: int, seed: int) -> list[Moment]:
    """Error and function explained at every snapshot, on the same fresh prompts."""
    family, sample = zoo.family(MODEL), zoo.prompts(MODEL, prompts, seed=seed)
    moments = []
    for step, model in snapshots.items():
        rule = unroll(model)
        form, _ = eagle_form(rule)
        explained = tuple(layer.explained for layer in layer_fidelity(rule, form, sample))
        moments.append(Moment(step, evaluate(model, family, count=prompts, seed=seed).pooled_relative_error, explained))
    return moments


def _table(moments: Sequence[Moment]) -> str:
    layers = "  ".join(f"layer {i:<4}" for i in range(len(moments[0].explained)))
    lines = [f"{'step':>6}  {'error':>8}  function explained by the two words: {layers}"]
    for moment in moments:
        shares = "  ".join(f"{value:>10.4f}" for value in moment.explained)
        lines.append(f"{moment.step:>6}  {moment.error:>8.2g}  {shares}")
    return "\n".join(lines)


def _draw(moments: Sequence[Moment], path: Path) -> None:
    later = moments[1:]
    steps = [moment.step for moment in later]
    unexplained = {
        f"layer {i}: 1 − function explained": (steps, [min(1.0, 1 - m.explained[i]) for m in later])
        for i in range(len(moments[0].explained))
    }
    draw_curves(
        {"relative error of the model": (steps, [m.error for m in later]), **unexplained},
        path,
        title=f"{MODEL} along its training",
        x="step",
        y="error, or share not explained",
        log_x=True,
        marks={"1 − .99": 1 - ENOUGH},
    )
