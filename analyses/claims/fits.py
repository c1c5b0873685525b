"""Numbers with intervals, for measurements: medians and exponents, by the bootstrap over prompts."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Measurement

RESAMPLES = 1000
TAIL = 0.025


def median(values: Float[Tensor, " sample"], note: str, seed: int = 0) -> Measurement:
    """The median of independent values, such as one a prompt."""
    return bootstrap(lambda chosen: chosen.median(-1).values, values, note, seed)


def exponent(x: Sequence[float], y: Float[Tensor, "x sample"], note: str, seed: int = 0) -> Measurement:
    """b of y ∝ x^b: the slope of mean log y over log x by least squares, resampled over the samples."""
    log_x = torch.tensor(x, dtype=torch.float64).log()
    centred = log_x - log_x.mean()
    slopes = centred @ y.double().log() / centred.square().sum()
    return bootstrap(lambda chosen: chosen.mean(-1), slopes, note, seed)


def bootstrap(
    statistic: Callable[[Float[Tensor, "*resample sample"]], Float[Tensor, "*resample"]],
    values: Float[Tensor, " sample"],
    note: str,
    seed: int = 0,
) -> Measurement:
    """A statistic of independent values with its 95 % interval over resampled values.

    Raises:
        ValueError: there is no value, or one is NaN.
    """
    if not len(values) or values.isnan().any():
        raise ValueError(f"{len(values)} values, {int(values.isnan().sum())} of them NaN: nothing to measure; {note}")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    resampled = statistic(values[chosen]).sort().values
    value = statistic(values).item()
    low, high = resampled[int(TAIL * RESAMPLES)].item(), resampled[-1 - int(TAIL * RESAMPLES)].item()
    return Measurement(value, (min(low, value), max(high, value)), note)
