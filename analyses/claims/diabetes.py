"""Prompts of real data: body-mass index and the progression of diabetes a year later (scikit-learn ships it)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from sklearn.datasets import load_diabetes
from torch import Tensor

from analyses.claims.cached_case import CachedCase
from analyses.claims.claim import Settings
from analyses.subject import FRESH
from models.prompts import GaussianProcess, Prompts
from models.prompts.completion import assemble
from models.prompts.random import white_noise

PENALTIES = (0.2, 0.8, 3.2, 12.8)
"""λ tried in hindsight."""


def patients() -> tuple[Float[Tensor, "patient 1"], Float[Tensor, "patient 1"]]:
    """x and y of all 442.

    x is the body-mass index, mapped linearly so that the least is −1 and the largest 1; y is the progression, less its
    mean and over its standard deviation.
    """
    data: Any = load_diabetes(scaled=False)
    bmi = torch.as_tensor(data.data[:, data.feature_names.index("bmi")], dtype=torch.float64)[:, None]
    progression = torch.as_tensor(data.target, dtype=torch.float64)[:, None]
    x = 2 * (bmi - bmi.min()) / (bmi.max() - bmi.min()) - 1
    return x, (progression - progression.mean()) / progression.std(correction=0)


def diabetes(family: GaussianProcess, count: int, settings: Settings) -> CachedCase:
    """Prompts of patients drawn without repetition, as many as the family has points and one more to ask for."""
    x, y = patients()
    generator = torch.Generator().manual_seed(FRESH + settings.seed)
    chosen = torch.rand(count, len(x), generator=generator).argsort(dim=1)[:, : family.n + 1]
    return CachedCase(family, _prompts(x[chosen], y[chosen], y[chosen[:, -1:]]).to(device=settings.device))


def look_alikes(real: CachedCase, noise: float, settings: Settings) -> dict[str, CachedCase]:
    """What of the real data is new to a model: its inputs with labels of the training process, or its noise alone.

    Args:
        noise: the variance of labels that nothing explains.
    """
    family, count, generator = real.task, real.prompts.count, torch.Generator().manual_seed(FRESH + settings.seed)
    x = torch.cat([real.prompts.A, real.prompts.B], dim=1).cpu()
    f = family.functions(x, generator)
    own = _prompts(x, f + white_noise(family.lam**0.5, f.shape, generator), f[:, -1:]).to(device=settings.device)
    noisy = CachedCase.fresh(replace(family, lam=noise), count, settings).prompts
    return {
        "the patients' inputs with labels of the training process": CachedCase(family, own),
        f"prompts of the training process with a noise of variance {noise:.2g}": CachedCase(family, noisy),
    }


def references(real: CachedCase, penalised: Mapping[float, float]) -> dict[str, float]:
    """Squared errors of KRR with the training kernel, at its λ and at the best of several, and of the mean label."""
    best = min(penalised, key=lambda lam: penalised[lam])
    return {
        f"KRR, λ = {real.task.lam:g}": real.errors(real.ridge).mean().item(),
        f"KRR, λ = {best:g}, best in hindsight": penalised[best],
        "mean of the labels": real.errors(real.prompts.C.mean(1)).mean().item(),
    }


def penalised_errors(real: CachedCase) -> dict[float, float]:
    """Squared error of KRR with the training kernel by λ."""
    cases = {lam: CachedCase(replace(real.task, lam=lam), real.prompts) for lam in PENALTIES}
    return {lam: real.errors(case.ridge).mean().item() for lam, case in cases.items()}


def _prompts(x: Float[Tensor, "prompt point 1"], y: Float[Tensor, "prompt point 1"], target: Tensor) -> Prompts:
    """The last point is the query."""
    return Prompts(assemble(x[:, :-1], x[:, -1:], y[:, :-1]), target)
