"""Comparisons of trained models with solvers, as the claims about them need: all seeds, smaller than the command's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analyses.claims.claim import Settings
from analyses.compare_model import Config, built_control, widened
from analyses.subject import FRESH
from interp.comparison import TO_KRR, Comparison, Control, Draws, Measured, Problems, choose, compare, measure
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Sizes:
    """Groups of prompts, prompts of a group to fit probes on and to compare on, steps of the solvers."""

    groups: int = 10
    train: int = 96
    test: int = 32
    steps: int = 96


FULL = Sizes(10, 512, 128, 128)
CAUSAL = Sizes(6, 48, 32, 96)


def control(sizes: Sizes) -> Control:
    """The built Richardson network."""
    return built_control(Config("", seeds=sizes.groups, control_prompts=sizes.test))


def compared(
    model: HookedTransformer, task: GaussianProcess, sizes: Sizes, settings: Settings, control: Control | None = None
) -> Comparison:
    """A model on prompts of a task, beside random networks and, if it is given, the built one."""
    model, task = widened(model, task)
    return compare(
        model.to(settings.device),
        _draw(task, settings),
        task.kernel,
        task.lam,
        steps=sizes.steps,
        seeds=sizes.groups,
        train=_train(task, sizes),
        test=sizes.test,
        control=control,
    )


def distances(
    model: HookedTransformer,
    task: GaussianProcess,
    solvers: Sequence[str],
    sizes: Sizes,
    settings: Settings,
    edits: Callable[[HookedTransformer], Sequence[Any]] | None = None,
) -> Measured:
    """A model's layers and some solvers, without controls, by probes fitted to KRR; with hooks that edit the model."""
    model, task = widened(model.double(), task)
    model = model.to(settings.device)
    draws = Draws(_draw(task, settings), _train(task, sizes), sizes.test, sizes.groups)
    hooks = [] if edits is None else list(edits(model))
    with model.hooks(fwd_hooks=hooks):
        return measure(model, draws, task.kernel, task.lam, choose(solvers), sizes.steps)[TO_KRR]


def _draw(task: GaussianProcess, settings: Settings) -> Callable[[int, int], Problems]:
    def draw(count: int, index: int) -> Problems:
        return Problems.of(task.sample(count, seed=FRESH + 1000 * settings.seed + index, device=settings.device))

    return draw


def _train(task: GaussianProcess, sizes: Sizes) -> int:
    """Prompts of one query tell the probes less."""
    return sizes.train if task.n_query > 1 else 4 * sizes.train
