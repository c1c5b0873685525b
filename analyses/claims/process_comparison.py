"""Comparisons of trained models with solvers, as the claims about them need: all seeds, smaller than the command's."""

from dataclasses import dataclass

from analyses.claims.claim import Settings
from analyses.compare_model import Config, built_control, widened
from analyses.subject import FRESH
from interp.comparison import Comparison, Control, Problems, compare
from models import zoo
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer


@dataclass(frozen=True)
class Sizes:
    """Groups of prompts, prompts of a group to fit probes on and to compare on, steps of the solvers."""

    groups: int = 10
    train: int = 192
    test: int = 48
    steps: int = 96


FULL = Sizes(10, 512, 128, 128)


def control(sizes: Sizes) -> Control:
    """The built Richardson network."""
    return built_control(Config("", seeds=sizes.groups))


def compared(
    model: HookedTransformer,
    task: GaussianProcess,
    sizes: Sizes,
    settings: Settings,
    control: Control | None = None,
) -> Comparison:
    """A model on prompts of a task."""
    model, task = widened(model, task)
    more = 1 if task.n_query > 1 else 4

    def draw(count: int, index: int) -> Problems:
        return Problems.of(task.sample(count, seed=FRESH + 1000 * settings.seed + index, device=settings.device))

    return compare(
        model.to(settings.device),
        draw,
        task.kernel,
        task.lam,
        steps=sizes.steps,
        seeds=sizes.groups,
        train=more * sizes.train,
        test=sizes.test,
        control=control,
    )


def task_of(name: str) -> GaussianProcess:
    """The task that a shipped model was trained on."""
    task = zoo.family(name)
    assert isinstance(task, GaussianProcess)
    return task
