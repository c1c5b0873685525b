"""Many queries to each prompt of a Gaussian process, answered from the context computed once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Measurement, Settings
from analyses.claims.process_case import ProcessCase
from analyses.subject import FRESH
from models.context_cache import ContextCache
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer


@dataclass(frozen=True, eq=False)
class CachedCase(ProcessCase):
    """The prompts of a task with any number of queries, each of which is answered as the only one of its prompt."""

    @classmethod
    def fresh(cls, task: GaussianProcess, count: int, settings: Settings, number: int = 0) -> "CachedCase":
        """Prompts that no training has seen; another `number` gives others."""
        return cls(task, task.sample(count, seed=FRESH + 1000 * settings.seed + number, device=settings.device))

    @torch.no_grad()
    def answers(self, model: HookedTransformer) -> Float[Tensor, "prompt query"]:
        tokens, n = self.prompts.tokens, self.prompts.A.shape[1]
        return ContextCache.of(model.double().to(tokens.device), tokens[:, :n]).answer(tokens[:, n:])[..., 0]


def worse_seed(found: Mapping[int, Measurement]) -> Measurement:
    """The seed with the largest value, those of all seeds in its note."""
    worst = max(found.values(), key=lambda measured: measured.value)
    listed = ", ".join(f"{seed}: {measured.value:.3g}" for seed, measured in found.items())
    return replace(worst, note=f"by seed {listed}; {worst.note}")
