"""Where on [1/κ², 1] the errors of a schedule count: eigenvalues g of AᵀA in units of the largest, with weights."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

NODES = 600
NAMES = ("interval", "log-uniform")


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Points g in [1/κ², 1] and weights that sum to 1; `whole`: for a maximum every g of the interval counts."""

    g: Float[Tensor, "point"]
    weight: Float[Tensor, "point"]
    kappa: float
    whole: bool = True

    @property
    def low(self) -> float:
        return 1 / self.kappa**2

    @classmethod
    def interval(cls, kappa: float) -> "Spectrum":
        """Every g of [1/κ², 1] alike."""
        x, weight = np.polynomial.legendre.leggauss(NODES)
        low = 1 / _checked(kappa) ** 2
        return cls(torch.tensor(low + (1 - low) * (x + 1) / 2), torch.tensor(weight / 2), kappa)

    @classmethod
    def log_uniform(cls, kappa: float, d: int | None = None) -> "Spectrum":
        """σ = √g log-uniform in [1/κ, 1]; with d, the mean over d singular values of which one is 1 and one is 1/κ."""
        x, weight = np.polynomial.legendre.leggauss(NODES)
        g, weight = torch.tensor(_checked(kappa) ** (-(x + 1))), torch.tensor(weight / 2)
        if d is None:
            return cls(g, weight, kappa)
        if d < 2:
            raise ValueError(f"Spectrum.log_uniform: d={d} must be at least 2, the two ends")
        ends = torch.tensor([1.0, 1 / kappa**2], dtype=torch.float64)
        return cls(torch.cat([g, ends]), torch.cat([weight * (1 - 2 / d), torch.full_like(ends, 1 / d)]), kappa)

    @classmethod
    def of(cls, spectrum: "str | Tensor | Spectrum", kappa: float) -> "Spectrum":
        """By name, or the singular values σ [*prompt, d] of a sample of matrices, each with σ_max = 1.

        Raises:
            ValueError: an unknown name, κ not above 1, a Spectrum of another κ, what is no real tensor, singular values
                outside [1/κ, 1].
        """
        if isinstance(spectrum, Spectrum):
            if not math.isclose(spectrum.kappa, _checked(kappa)):
                raise ValueError(f"kappa={kappa:g}, but the Spectrum is one of κ = {spectrum.kappa:g}; give the same")
            return spectrum
        if isinstance(spectrum, str):
            if spectrum not in NAMES:
                raise ValueError(f"spectrum {spectrum!r} is unknown; known: {', '.join(NAMES)}, or singular values")
            return cls.interval(kappa) if spectrum == "interval" else cls.log_uniform(kappa)
        if not isinstance(spectrum, Tensor) or not spectrum.is_floating_point():
            got = f"a tensor of {spectrum.dtype}" if isinstance(spectrum, Tensor) else f"a {type(spectrum).__name__}"
            raise ValueError(f"spectrum: give a name, a Spectrum, or singular values as a tensor of floats, got {got}")
        sigma = spectrum.detach().double().flatten().cpu()
        slack = 1 + 1e-6
        if not len(sigma) or not ((sigma * _checked(kappa) * slack >= 1) & (sigma <= slack)).all():
            raise ValueError(f"spectrum: singular values must lie in [1/κ, 1] = [{1 / kappa:.3g}, 1]; scale σ_max to 1")
        return cls(sigma.square(), torch.full_like(sigma, 1 / len(sigma)), kappa, whole=False)

    def grid(self, degree: int, fine: bool = False) -> Float[Tensor, "point"]:
        """Points that show every extreme of a polynomial of that degree, in order; the sample itself, if it is one."""
        if not self.whole:
            return self.g.unique()
        many, logs = (200 * degree + 2000, 400) if fine else (3 * degree + 60, 80)
        low = 1 / self.kappa
        angle = (1 + low) / 2 - (1 - low) / 2 * torch.linspace(0, math.pi, many, dtype=torch.float64).cos()
        spread = torch.logspace(math.log10(low), 0, logs, dtype=torch.float64)
        return torch.cat([angle, spread]).square().clamp(low**2, 1).unique()


def _checked(kappa: float) -> float:
    if not 1 < kappa < float("inf"):
        raise ValueError(f"kappa={kappa} must be finite and above 1; it is κ(A), not κ(AᵀA)")
    return kappa
