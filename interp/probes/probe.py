"""probe: what a model's activations say about a quantity, at every hook, with controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch

from interp.covariance import Covariance
from interp.hooks import in_float64
from interp.layout import BlockLayout
from interp.probes.estimators import MLPProbe
from interp.probes.fitters import make_fitter
from interp.probes.readings import ENTRIES, LINEAR, MOMENTS, Reading, default_reading
from interp.probes.report import LayerScore, ProbeReport
from interp.probes.stream import Edits, ModelSource, PromptSource, depth_hooks, odd_in_tokens
from interp.probes.study import Found, Study
from interp.probes.targets import BY_ROW, MEANING, alternates, check_target, row_role
from interp.probes.untrained import randomised
from interp.unrolling.moments import check_prompts

PENALTIES = tuple(np.logspace(-10, 2, 20).tolist())
LEAST_PROMPTS = 8
FEW = 20  # held-out prompts
NEAREST = 4
SAMPLE = 256  # prompts on which the untrained model's sizes are matched


@dataclass(frozen=True)
class Settings:
    """How to probe.

    Args:
        reading: how activations become features, a name or a `Reading`; "auto" is `default_reading`.
        estimator: "ridge", "mlp" (64 hidden units), or an `MLPProbe` with other settings.
        alphas, relative: penalties or one, by default 20 from 1e-10 to 100, in units of the Gram matrix's
            mean eigenvalue.
        ridge: λ of the targets that solve; 0 for least squares.
        covariance: of the functions, for row-sums, kernel-dual and kernel-prediction.
        held_out: share of the prompts, the last ones, on which R² is measured.
        batch: prompts a forward pass: memory grows with it and not with the number of prompts (MLPs apart).
        seed: of shuffling, of the untrained weights and of MLPs.
    """

    reading: str | Reading = "auto"
    estimator: str | MLPProbe = "ridge"
    alphas: float | Sequence[float] = PENALTIES
    relative: bool = True
    ridge: float = 0.0
    covariance: Covariance | None = None
    held_out: float = 0.25
    batch: int = 256
    seed: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """The settings given by name.

        Raises:
            ValueError: a name that is none of them.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"probe: unknown setting {name!r}; known: {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        if self.batch < 1 or not 0 < self.held_out < 1:
            raise ValueError(
                f"probe: batch={self.batch} must be at least 1 and held_out={self.held_out} a share between 0 and 1"
            )

    @property
    def penalties(self) -> Sequence[float]:
        return (float(self.alphas),) if isinstance(self.alphas, int | float) else self.alphas

    def split(self, prompts: int) -> int:
        """How many prompts are held out."""
        if prompts < LEAST_PROMPTS:
            raise ValueError(
                f"probe: {prompts} prompts are too few to train and hold out; give {LEAST_PROMPTS} or more"
            )
        return min(max(round(self.held_out * prompts), 4), prompts - 2)


def probe(
    model: Any,
    prompts: Any,
    target: str = "w",
    hooks: str | Sequence[str] | None = None,
    *,
    untrained: Any = None,
    layout: BlockLayout | None = None,
    edits: Edits = (),
    **settings: Any,
) -> ProbeReport:
    """Read a quantity from the activations at each hook, in float64, and the same from three controls.

    Args:
        model: any hooked model (`interp.hooks.Hooked`).
        prompts: tokens [prompt, token, d_in], or a value with such `.tokens`.
        target: one of `TARGETS` (`interp.probes.targets`), of the prompt's own A, B and C.
        hooks: names of hook points, or one name; None for the residual stream before block 0 and after every block.
        untrained: a model of the same architecture with fresh weights; None draws one (`randomised`).
        layout: which columns and rows mean what; None for the model's own.
        edits: hooks (name, function) that run in the model, not in the controls, before the activations are read.
        settings: as in `Settings`: reading, estimator, alphas, relative, ridge, covariance, held_out, batch, seed.

    Raises:
        ValueError: an unknown target, hook, reading or estimator; a hook that did not fire; activations that are not
            finite (names the hook); constant targets; no penalty and fewer prompts than features; prompts that do not
            define the target.
    """
    return probe_all(model, prompts, [target], hooks, untrained=untrained, layout=layout, edits=edits, **settings)[
        target
    ]


def probe_all(
    model: Any,
    prompts: Any,
    targets: Sequence[str],
    hooks: str | Sequence[str] | None = None,
    *,
    untrained: Any = None,
    layout: BlockLayout | None = None,
    edits: Edits = (),
    **settings: Any,
) -> dict[str, ProbeReport]:
    """`probe` for several targets: those with one reading share forward passes and factorisations."""
    chosen = Settings.of(settings)
    if not targets:
        raise ValueError("probe: give at least one target, such as 'w'")
    layout = layout or getattr(model, "layout", None)
    for target in targets:
        layout = check_target(target, layout, getattr(prompts, "tokens", prompts), chosen.ridge, chosen.covariance)
    assert layout is not None  # check_target has refused that
    tokens = check_prompts(prompts, layout)
    model = in_float64(model)
    hooks = depth_hooks(model) if hooks is None else [hooks] if isinstance(hooks, str) else list(hooks)
    check_hooks(model, hooks)
    odd = odd_in_tokens(model, tokens[:2], layout)
    fresh = randomised(model, tokens[:SAMPLE], chosen.seed) if untrained is None else in_float64(untrained)
    found: dict[str, ProbeReport] = {}
    alternating = alternates(tokens, layout)
    for reading, group in group_by_reading(targets, chosen.reading, odd, alternating).items():
        for target in group:
            reading.check(target, layout, tokens.shape[1], alternating)
        held_out = chosen.split(len(tokens))
        numbers = chosen.ridge, chosen.batch, chosen.seed, chosen.covariance
        study = Study(tokens, layout, reading, group, held_out, *numbers)
        found |= _reports(study, model, fresh, hooks, chosen, edits, odd, untrained is None)
    return {target: found[target] for target in targets}


def _reports(
    study: Study, model: Any, fresh: Any, hooks: list[str], chosen: Settings, edits: Edits, odd: bool, drawn: bool
) -> dict[str, ProbeReport]:
    """One report a target of a study."""
    reading, layout = study.reading, study.layout
    rows = study.tokens.shape[1] if reading.kind == "weighted" else None
    make = make_fitter(chosen.estimator, chosen.penalties, chosen.relative, rows, chosen.seed)
    plain = make_fitter(chosen.estimator, chosen.penalties, chosen.relative, None, chosen.seed)
    of_model = study.run(ModelSource(model, hooks, reading, layout, edits), make, shuffled=True)
    of_fresh = study.run(ModelSource(fresh, hooks, reading, layout), make)
    of_prompt = study.run(PromptSource(reading, layout), plain)
    depths = {name: depth for depth, name in enumerate(depth_hooks(model))}
    name = chosen.estimator if isinstance(chosen.estimator, str) else "mlp"
    return {
        target: ProbeReport(
            target,
            MEANING[target],
            str(reading),
            name,
            tuple(_layer(hook, depths.get(hook), target, of_model, of_fresh, of_prompt) for hook in hooks),
            study.train,
            study.held_out,
            study.columns(torch.arange(1), False)[:, study.slices(False)[target, False]].shape[1],
            _notes(reading, target, odd, chosen, study.held_out, drawn),
        )
        for target in study.targets
    }


def _layer(hook: str, depth: int | None, target: str, model: Found, fresh: Found, prompt: Found) -> LayerScore:
    fitted, score = model[hook, target, False]
    best = max((ENTRIES, MOMENTS), key=lambda features: prompt[features, target, False][1].value)
    positions = getattr(fitted, "positions", None)
    return LayerScore(
        hook,
        depth,
        score,
        model[hook, target, True][1],
        fresh[hook, target, False][1],
        prompt[best, target, False][1],
        getattr(fitted, "alpha", None),
        None if positions is None else tuple(positions.tolist()),
        getattr(fitted, "converged", True),
        best,
    )


def _notes(reading: Reading, target: str, odd: bool, chosen: Settings, held_out: int, drawn: bool) -> tuple[str, ...]:
    notes = [f"λ = {chosen.ridge:g} in the target"] if chosen.ridge else []
    if odd and reading.kind in LINEAR and target not in BY_ROW:
        notes.append(
            f"the model is odd in each token and {target} is even: no linear probe of tokens reads it, whatever the "
            "model holds; take the reading queries or second-moment"
        )
    if reading.kind == "queries":
        notes.append(
            "the features are the network's answers to unit queries: at late depths a high score says again that the "
            "model predicts well, and nothing of the target being held in the rows of the prompt"
        )
    if held_out < FEW:
        notes.append(f"only {held_out} prompts are held out: scores and intervals are rough; give more prompts")
    if drawn:
        notes.append("the untrained control is one draw of weights; its interval is over prompts, not over draws")
    return tuple(notes)


def group_by_reading(
    targets: Sequence[str], reading: str | Reading, odd: bool, alternating: bool = False
) -> dict[Reading, list[str]]:
    """The targets by how they are read."""
    groups: dict[Reading, list[str]] = {}
    for target in targets:
        if isinstance(reading, Reading):
            chosen = reading
        elif reading == "auto":
            chosen = default_reading(target, odd, alternating)
        else:
            chosen = Reading(reading, role=row_role(target, alternating) or "context")
        groups.setdefault(chosen, []).append(target)
    return groups


def check_hooks(model: Any, hooks: Sequence[str]) -> None:
    """Raise if there is no hook, one is named twice, or one is no hook point of the model."""
    if not hooks or len(set(hooks)) < len(hooks):
        raise ValueError(f"probe: give each hook once and at least one, got {list(hooks)}")
    for name in hooks:
        if name not in model.hook_dict:
            near = get_close_matches(str(name), model.hook_dict, NEAREST, cutoff=0.0)
            raise ValueError(f"the model has no hook point {name!r}; the nearest: {', '.join(near)}")
