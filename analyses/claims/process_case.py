"""Answers of models to prompts of a Gaussian process, beside those of exact kernel ridge regression."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Measurement, Settings
from analyses.claims.fits import bootstrap
from interp.gaussian_process import posterior
from models import zoo
from models.prompts import GaussianProcess, Prompts
from models.transformer import HookedTransformer


@dataclass(frozen=True, eq=False)
class ProcessCase:
    """Prompts of one task, and KRR's answers to them.

    Args:
        task: which distribution.      prompts: drawn from it, in float64.
    """

    task: GaussianProcess
    prompts: Prompts

    @classmethod
    def draw(cls, task: GaussianProcess, count: int, settings: Settings) -> "ProcessCase":
        return cls(task, task.sample(count, seed=settings.seed, device=settings.device))

    @cached_property
    def ridge(self) -> Float[Tensor, "prompt query"]:
        """KRR with the covariance and the noise variance of the task."""
        found = posterior(self.task.kernel, self.task.lam, self.prompts.A, self.prompts.C, self.prompts.B)
        return found.mean[..., 0]

    @property
    def target(self) -> Float[Tensor, "prompt query"]:
        """f at the queries, without noise."""
        return self.prompts.target[..., 0]

    @torch.no_grad()
    def answers(self, model: HookedTransformer) -> Float[Tensor, "prompt query"]:
        """A model's answers, in float64."""
        return model.double().to(self.prompts.tokens.device).predict(self.prompts.tokens)[..., 0]

    def errors(self, answers: Float[Tensor, "prompt query"]) -> Float[Tensor, "prompt"]:
        """Squared error from the target, a prompt."""
        return (answers - self.target).square().mean(-1)


def task_of(name: str) -> GaussianProcess:
    """The task that a shipped model was trained on."""
    task = zoo.family(name)
    assert isinstance(task, GaussianProcess)
    return task


def ratio(over: Float[Tensor, "prompt"], under: Float[Tensor, "prompt"], note: str, settings: Settings) -> Measurement:
    """mean / mean over prompts, resampled together."""
    over, under = over.cpu(), under.cpu()
    everything = torch.arange(len(over))
    return bootstrap(lambda at: over[at].mean(-1) / under[at].mean(-1), everything, note, settings.seed)
