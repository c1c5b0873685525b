"""Probes prove that the model maintains w: the probe, its controls and a causal check side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.decodable import excess
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from interp.decoding import Steering, Written, steer, write_weights
from interp.decoding.moves import gains
from interp.hooks import capture, hook_name
from interp.probes import PENALTIES, ProbeReport, RidgeProbe, probe
from models import zoo
from models.prompts import Prompts
from models.transformer import HookedTransformer

SOFTMAX, LINEAR = "linreg-softmax", "eagle-d10"
PROMPTS, FULL = 2000, 20000
UNTRAINED = "random weights keep the moments of the rows, of which w is read"
MOVED, SIZE = 512, 0.2
"""Prompts on which w is moved, and by how much: ‖δ‖ over the rms of ‖w‖."""
ANSWER_MOVE = 0.2
"""How far the positive control asks the prediction to move."""
EDITS = ("pattern", "least", "random")


@dataclass(frozen=True, eq=False)
class Effect:
    """At a depth: how the prediction of each prompt changes when the context rows are moved at a probe's word.

    Args:
        expected: x·δ, if the model answered with the probed w.
        changes: of the prediction, by edit: "pattern", as the activations move with w over prompts; "least", the
            shortest step; "random", a direction without meaning, as long as the pattern's.
        steered: the pattern's edit beside random ones as long: does what the probe reads cause?
        answer: the positive control, the query row moved as it goes with the prediction over prompts.
    """

    depth: int
    expected: Float[Tensor, " prompt"]
    changes: Mapping[str, Float[Tensor, " prompt"]]
    steered: Steering
    answer: Steering

    def slope(self, edit: str, at: Tensor | slice = slice(None)) -> Tensor:
        """Σ change · expected / Σ expected², over all prompts or chosen ones."""
        change, expected = self.changes[edit][at], self.expected[at]
        return (change * expected).mean(-1) / expected.square().mean(-1)

    def to_dict(self) -> dict[str, Any]:
        slopes = {edit: self.slope(edit).item() for edit in EDITS}
        return {"depth": self.depth, **slopes, "steered": self.steered.to_dict(), "answer": self.answer.to_dict()}


def measure(settings: Settings, prompts: int | None = None, moved: int = MOVED) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    model = zoo.load(SOFTMAX).double().to(settings.device)
    sample = zoo.prompts(SOFTMAX, count, seed=settings.seed, device=settings.device)
    others = zoo.prompts(SOFTMAX, moved, seed=settings.seed + 1, device=settings.device)
    report = probe(model, sample, "w", reading="pooled", seed=settings.seed)
    effects = [effect(model, sample, others, depth, settings.seed) for depth in range(1, model.cfg.n_layers + 1)]
    read = max(report.layers[1:-1], key=lambda layer: layer.score.value)
    assert read.depth is not None
    note = f"{SOFTMAX}, {count} prompts, a quarter held out, seed {settings.seed}"
    measurements = {
        "probe": Measurement(read.score.value, read.score.interval, f"depth {read.depth}; {note}"),
        "controls": excess(report, f"{UNTRAINED}; {note}", read),
        "cause": _cause(effects[read.depth - 1], settings.seed),
        "unread": _unread(report, effects[-1], note),
    }
    known = algebra(settings, max(2, moved // 8))
    details = {"probe": report.to_dict(), "writes": [one.to_dict() for one in effects], "algebra": known}
    return Findings(measurements, _table(report, effects, known), details, partial(_draw, report, effects))


def effect(model: HookedTransformer, sample: Prompts, others: Prompts, depth: int, seed: int) -> Effect:
    """A probe of the mean of the context rows after `depth` ≥ 1 blocks, trained on one sample, written to on the other:
    every context row moves by the same step."""
    at = hook_name("resid_post", depth - 1)
    n, generator = sample.A.shape[1], torch.Generator().manual_seed(seed)
    w = torch.linalg.lstsq(sample.A, sample.C).solution[..., 0]
    z = capture(model, sample.tokens, [at])[at]
    features = z[:, :n].mean(1)
    coef = torch.from_numpy(RidgeProbe(PENALTIES, relative=True).fit(features, w).coef_).to(w)
    delta = torch.randn(len(others.tokens), w.shape[1], generator=generator, dtype=torch.float64).to(w)
    delta *= SIZE * w.square().sum(1).mean().sqrt() / delta.norm(dim=1, keepdim=True)
    steps = {"pattern": pattern_step(features, coef, delta), "least": delta @ torch.linalg.pinv(coef).T}
    random = torch.randn(steps["pattern"].shape, generator=generator, dtype=torch.float64).to(w)
    steps["random"] = random * (steps["pattern"].norm(dim=1) / random.norm(dim=1))[:, None]
    changes = {edit: moved(model, others, at, steps[edit]) for edit in EDITS}
    expected = (others.B[:, 0] * delta).sum(1)
    steered = steer(model, others, at, steps["pattern"], expected[:, None, None], tokens=slice(None, n), seed=seed)
    answer = steer_answer(model, others, at, z[:, n], model.predict(sample.tokens).detach()[:, 0], seed)
    return Effect(depth, expected.cpu(), changes, steered, answer)


def steer_answer(
    model: HookedTransformer,
    others: Prompts,
    at: str,
    rows: Float[Tensor, "prompt width"],
    answers: Float[Tensor, "prompt 1"],
    seed: int,
) -> Steering:
    """The positive control: each query row moved by Cov(row, prediction) / Var(prediction) times the asked move, the
    covariance that of other prompts. After the last block this is what the readout makes of it."""
    centred = answers - answers.mean(0)
    direction = ((rows - rows.mean(0)) * centred).mean(0) / centred.square().mean()
    expected = torch.full_like(others.target, ANSWER_MOVE)
    return steer(model, others, at, ANSWER_MOVE * direction, expected, seed=seed)


def pattern_step(
    features: Float[Tensor, "prompt width"], coef: Float[Tensor, "x width"], delta: Float[Tensor, "some x"]
) -> Float[Tensor, "some width"]:
    """The step that moves the probe by δ along Cov(features, probe): how features go with it from prompt to prompt."""
    probed = (features - features.mean(0)) @ coef.T
    cross = probed.T @ (features - features.mean(0))
    return delta @ torch.linalg.solve(probed.T @ probed, cross)


@torch.no_grad()
def moved(model: HookedTransformer, prompts: Prompts, at: str, shift: Float[Tensor, "prompt width"]) -> Tensor:
    """How the prediction changes when every context row is moved at a hook."""
    n = prompts.A.shape[1]

    def edit(z: Tensor, hook: Any) -> Tensor:
        return torch.cat([z[:, :n] + shift[:, None], z[:, n:]], dim=1)

    after = model.run_with_hooks(prompts.tokens, fwd_hooks=[(at, edit)])[:, -prompts.n_query :]
    return (after - model.predict(prompts.tokens))[:, 0, 0].cpu()


def algebra(settings: Settings, count: int) -> list[dict[str, float]]:
    """In linear attention: δ written into the context rows alone reaches the prediction as B (ρ_l(G) − 1) δ, which the
    trained steps of the later layers make −1 in early layers and 0 after the last."""
    model, sample = zoo.load(LINEAR), zoo.prompts(LINEAR, count, seed=settings.seed)
    generator = torch.Generator().manual_seed(1)
    delta = SIZE * torch.randn(sample.A.shape[2], sample.d_out, generator=generator, dtype=torch.float64)
    return [_written(write_weights(model, sample, d, delta, rows="context")) for d in range(model.cfg.n_layers + 1)]


def _written(found: Written) -> dict[str, float]:
    form, error = found.by_closed_form, found.error
    assert form is not None and error is not None, f"{LINEAR} has an exact rule and a closed form"
    said = gains(form, found.expected).median().item()
    return {"depth": found.depth, "gain": found.gain, "closed_form": said, "error": error}


def _cause(found: Effect, seed: int) -> Measurement:
    least, random = found.slope("least"), found.slope("random")
    note = (
        f"depth {found.depth}, {len(found.expected)} other prompts, δ of {SIZE:g} times the size of w, every context "
        f"row moved by δ Cov(ŵ)⁻¹ Cov(ŵ, z); slope of the shortest step with the same ŵ {least:.2g}, of random steps "
        f"as long as the first {random:.2g}; the probe {found.steered.verdict}, while the query row moved along the "
        f"prediction moves it by {found.answer.gain:.3g} of what is asked: {found.answer.verdict}"
    )
    return bootstrap(lambda at: found.slope("pattern", at), torch.arange(len(found.expected)), note, seed)


def _unread(report: ProbeReport, last: Effect, note: str) -> Measurement:
    score, slope = report.layers[-1].score, last.slope("pattern").item()
    return Measurement(score.value, score.interval, f"an edit there changes the prediction by {slope:g} δ·x; {note}")


def _table(report: ProbeReport, effects: Sequence[Effect], known: Sequence[Mapping[str, float]]) -> str:
    lines = [
        f"{SOFTMAX}, w from the mean of the context rows: what the probe reads, its controls, and what its edits do",
        f"{'depth':>5}{'R²':>9}{'shuffled':>10}{'untrained':>11}{'prompt':>9}{'pattern':>9}{'least':>9}{'random':>9}",
    ]
    for layer, found in zip(report.layers[1:], effects, strict=True):
        scores = (layer.score, layer.shuffled, layer.untrained, layer.prompt_only)
        cells = "".join(f"{score.value:>{width}.3f}" for score, width in zip(scores, (9, 10, 11, 9), strict=True))
        lines.append(f"{found.depth:>5}{cells}" + "".join(f"{found.slope(edit):>9.3f}" for edit in EDITS))
    lines.append(f"{SOFTMAX}, share of the asked move that reaches the prediction (at most, of random directions)")
    lines.append(f"{'depth':>5}  {'context rows along the probe of w':<43}query row along the prediction")
    lines += [f"{found.depth:>5}  {_steered(found.steered):<43}{_steered(found.answer)}" for found in effects]
    lines.append(f"{LINEAR}, w moved in the context rows alone: the algebra says ρ − 1, later layers pass the error on")
    lines += [
        f"{one['depth']:>5}  gain {one['gain']:>6.3f}, ρ − 1 = {one['closed_form']:>6.3f}, "
        f"off the exact rule by {one['error']:.1e}"
        for one in known
    ]
    return "\n".join(lines)


def _steered(found: Steering) -> str:
    largest = max(abs(gain) for gain in found.controls)
    return f"{found.gain:>6.3f} ({largest:.3f}) {found.verdict}"


def _draw(report: ProbeReport, effects: Sequence[Effect], path: Path) -> None:
    depths, layers = [found.depth for found in effects], report.layers[1:]
    curves: Mapping[str, tuple[list[int], list[float]]] = {
        "R² of the probe": (depths, [layer.score.value for layer in layers]),
        "R², untrained": (depths, [layer.untrained.value for layer in layers]),
        "R², shuffled": (depths, [layer.shuffled.value for layer in layers]),
        "slope of the probe's edit": (depths, [found.slope("pattern").item() for found in effects]),
        "slope of random edits": (depths, [found.slope("random").item() for found in effects]),
    }
    draw_curves(
        curves,
        path,
        title=f"w in {SOFTMAX}: read, and written back",
        x="depth",
        y="R², or change of prediction / δ·x",
        log_y=False,
        marks={"answers with that w": 1.0},
    )
