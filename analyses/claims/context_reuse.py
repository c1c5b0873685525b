"""Queries never write to the context of a prompt: computed once, it answers many queries, each at the cost of a row."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.costs import alternating, count_flops
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from analyses.claims.process_case import task_of
from analyses.subject import FRESH
from models import zoo
from models.context_cache import ContextCache
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer

MODELS = ("gp-softmax", "gp-softmax-d2", "gp-linear", "gp-laplace")
CONTEXTS, QUERIES = 16, 64
"""Of the comparison of answers; FLOPs and time are those of one context."""
SWEEP = (1, 4, 16, 64, 256)
ROUNDS, FULL, SWEEP_ROUNDS = 41, 201, 11


@dataclass(frozen=True)
class Work:
    """The same answers twice: by whole forward passes of a prompt a query, and from the context computed once."""

    model: HookedTransformer
    context: Float[Tensor, "batch context d_in"]
    queries: Float[Tensor, "batch query d_in"]

    @classmethod
    def of(
        cls, model: HookedTransformer, family: GaussianProcess, contexts: int, queries: int, settings: Settings
    ) -> "Work":
        """On fresh prompts of a family, in the model's dtype."""
        model = model.to(settings.device)
        drawn = replace(family, n_query=queries).sample(
            contexts, seed=FRESH + settings.seed, dtype=model.dtype, device=settings.device
        )
        return cls(model, drawn.tokens[:, : family.n], drawn.tokens[:, family.n :])

    @property
    def prompts(self) -> Float[Tensor, "prompt token d_in"]:
        """One prompt a query."""
        contexts = self.context.repeat_interleave(self.queries.shape[1], dim=0)
        return torch.cat([contexts, self.queries.flatten(0, 1)[:, None]], dim=1)

    def whole(self) -> Callable[[], Float[Tensor, "batch query out"]]:
        prompts, shape = self.prompts, self.queries.shape[:2]
        return lambda: self.model.predict(prompts).unflatten(0, shape)[:, :, 0]

    def cached(self) -> Callable[[], Float[Tensor, "batch query out"]]:
        return lambda: ContextCache.of(self.model, self.context).answer(self.queries)

    @torch.no_grad()
    def gap(self) -> float:
        """The largest difference of answers over their rms."""
        whole, cached = self.whole()(), self.cached()()
        return ((whole - cached).abs().max() / whole.square().mean().sqrt()).item()

    def flops(self) -> tuple[int, int]:
        """Floating-point operations of the matrix products, whole and cached."""
        return count_flops(self.whole()), count_flops(self.cached())

    def seconds(self, rounds: int) -> Float[Tensor, "way round"]:
        """Whole and cached, in turns."""
        return alternating(self.whole(), self.cached(), rounds)


def measure(
    settings: Settings,
    models: Mapping[str, Mapping[int, HookedTransformer]] | None = None,
    families: Mapping[str, GaussianProcess] | None = None,
    rounds: int | None = None,
) -> Findings:
    models = models or {name: zoo.seeds(name) for name in MODELS}
    families = families or {name: task_of(name) for name in models}
    rounds = rounds or (FULL if settings.full else ROUNDS)
    gaps = {
        f"{name}, seed {seed}": Work.of(model.double(), families[name], CONTEXTS, QUERIES, settings).gap()
        for name, of_seed in models.items()
        for seed, model in of_seed.items()
    }
    firsts = {name: next(iter(of_seed.values())).float() for name, of_seed in models.items()}
    one = {name: Work.of(model, families[name], 1, QUERIES, settings) for name, model in firsts.items()}
    flops = {name: work.flops() for name, work in one.items()}
    times = {name: work.seconds(rounds) for name, work in one.items()}
    main = next(iter(models))
    sweep = _sweep(firsts[main], families[main], settings)
    many = Work.of(firsts[main], families[main], CONTEXTS, QUERIES, settings).seconds(SWEEP_ROUNDS)
    at_once = (statistics.median(many[0].tolist()) / statistics.median(many[1].tolist()), CONTEXTS)
    measurements = {
        "equal": _equal(gaps, settings.seed),
        "flops": _flops(flops, families[main].n),
        "time": _time(times, at_once, settings),
    }
    details = {
        "gaps": gaps,
        "flops": {name: dict(zip(("whole", "cached"), pair, strict=True)) for name, pair in flops.items()},
        "seconds": {name: dict(zip(("whole", "cached"), _medians(both), strict=True)) for name, both in times.items()},
        "sweep": sweep,
        "contexts_at_once": at_once,
    }
    return Findings(measurements, _table(gaps, flops, times, sweep), details, partial(_draw, main, sweep))


def _equal(gaps: Mapping[str, float], seed: int) -> Measurement:
    largest = max(gaps, key=lambda name: gaps[name])
    note = f"over the rms of the answers; {CONTEXTS} contexts of {QUERIES} queries, seed {seed}; largest of "
    return Measurement.exact(gaps[largest], f"{note}{len(gaps)} models: {largest}")


def _flops(flops: Mapping[str, Sequence[int]], points: int) -> Measurement:
    """The model that gains least."""
    ratios = {name: whole / cached for name, (whole, cached) in flops.items()}
    listed = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
    note = (
        f"multiplications and additions of matrix products by torch's counter; {points} points, {QUERIES} queries, the "
        f"model that gains least of: {listed}. The context is computed with one row of zeros behind it"
    )
    return Measurement.exact(min(ratios.values()), note)


def _time(times: Mapping[str, Tensor], at_once: tuple[float, int], settings: Settings) -> Measurement:
    """The model that gains least, the rounds resampled."""

    def ratio(both: Tensor, at: Tensor) -> Tensor:
        return both[0, at].median(-1).values / both[1, at].median(-1).values

    rounds = torch.arange(next(iter(times.values())).shape[1])
    note = (
        f"one context, its {QUERIES} prompts as one batch against one call each for context and queries; float32, "
        f"{settings.device}, {torch.get_num_threads()} threads, {len(rounds)} rounds in turns, the model that gains "
        f"least of: {', '.join(f'{name} {ratio(both, rounds).item():.1f}' for name, both in times.items())}. At this "
        f"size the fixed cost of two passes weighs; {at_once[1]} contexts at once: {at_once[0]:.1f}"
    )
    found = [bootstrap(partial(ratio, both), rounds, note, settings.seed) for both in times.values()]
    return min(found, key=lambda measured: measured.value)


def _sweep(model: HookedTransformer, family: GaussianProcess, settings: Settings) -> dict[int, dict[str, float]]:
    """Ratios by number of queries to one context."""
    found = {}
    for queries in SWEEP:
        work = Work.of(model, family, 1, queries, settings)
        (whole, cached), (slow, fast) = work.flops(), _medians(work.seconds(SWEEP_ROUNDS))
        found[queries] = {"flops": whole / cached, "time": slow / fast}
    return found


def _medians(both: Float[Tensor, "way round"]) -> tuple[float, float]:
    whole, cached = both.median(-1).values.tolist()
    return whole, cached


def _table(
    gaps: Mapping[str, float],
    flops: Mapping[str, Sequence[int]],
    times: Mapping[str, Tensor],
    sweep: Mapping[int, Mapping[str, float]],
) -> str:
    lines = [
        f"{QUERIES} queries to one context: whole forward passes, the context once, ratio",
        f"{'':<16}{'MFLOP':>9}{'once':>8}{'ratio':>7}{'ms':>10}{'once':>8}{'ratio':>7}",
    ]
    for name, (whole, cached) in flops.items():
        slow, fast = _medians(times[name])
        lines.append(
            f"{name:<16}{whole / 1e6:>9.2f}{cached / 1e6:>8.2f}{whole / cached:>7.1f}"
            f"{1e3 * slow:>10.2f}{1e3 * fast:>8.2f}{slow / fast:>7.1f}"
        )
    lines += ["", "largest difference over the rms of the answers, float64"]
    lines += [f"  {name:<24}{gap:.1e}" for name, gap in gaps.items()]
    lines += ["", f"{'queries':>8}{'FLOPs ×':>9}{'time ×':>8}"]
    lines += [f"{queries:>8}{by['flops']:>9.2f}{by['time']:>8.2f}" for queries, by in sweep.items()]
    return "\n".join(lines)


def _draw(name: str, sweep: Mapping[int, Mapping[str, Any]], path: Path) -> None:
    labels = {"flops": "floating-point operations", "time": "time"}
    draw_curves(
        {label: (list(sweep), [by[key] for by in sweep.values()]) for key, label in labels.items()},
        path,
        title=f"The context computed once ({name})",
        x="queries to one context",
        y="whole forward passes over it, ratio",
        log_x=True,
        marks={"no gain": 1.0},
    )
