"""Prompts of masked-block completion (MATH §1), in seeded families."""

from collections.abc import Mapping
from typing import Any

from models.prompts.alternating import AlternatingPrompts, Sequences, interleaved
from models.prompts.completion import CovarianceFactors, LogUniformSpectrum
from models.prompts.family import PromptFamily
from models.prompts.gaussian_process import GaussianProcess
from models.prompts.nystrom import HaarNystrom, KernelNystrom
from models.prompts.regression import GaussianRegression, LinearRegression, StandardRegression, UniformRegression
from models.prompts.value import Prompts

__all__ = [
    "FAMILIES",
    "AlternatingPrompts",
    "CovarianceFactors",
    "GaussianProcess",
    "GaussianRegression",
    "HaarNystrom",
    "KernelNystrom",
    "LinearRegression",
    "LogUniformSpectrum",
    "PromptFamily",
    "Prompts",
    "Sequences",
    "StandardRegression",
    "UniformRegression",
    "family_from_dict",
    "interleaved",
]

FAMILIES: dict[str, type[PromptFamily]] = {
    family.__name__: family
    for family in (
        LogUniformSpectrum,
        CovarianceFactors,
        HaarNystrom,
        KernelNystrom,
        UniformRegression,
        GaussianRegression,
        StandardRegression,
        GaussianProcess,
    )
}


def family_from_dict(values: Mapping[str, Any]) -> PromptFamily:
    """The family that `PromptFamily.to_dict` described.

    Raises:
        ValueError: an unknown family, or settings that it does not have.
    """
    settings = dict(values)
    name = settings.pop("family", None)
    if name not in FAMILIES:
        raise ValueError(f"unknown prompt family {name!r}; known: {', '.join(FAMILIES)}")
    try:
        return FAMILIES[name](**settings)
    except TypeError as error:
        raise ValueError(f"the settings {settings} do not fit the prompt family {name}: {error}") from error
