"""The schedules of trained models beside the best that can be found for their spectrum and depth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp import closed_form, unroll
from interp.solvers.polynomial_bound import polynomial_bound
from interp.solvers.schedules import Schedule, optimal_schedule
from interp.solvers.spectra import Spectrum
from interp.stats import CENTRAL
from interp.unrolling.spectral import ClosedForm
from models import zoo
from models.prompts import CovarianceFactors, LogUniformSpectrum, PromptFamily

PROMPTS = 512  # of a family whose spectra are only known from a sample
BINS = 200


@dataclass(frozen=True)
class Placement:
    """A trained schedule among what was found.

    Args:
        error: rms of r_L over the training spectrum, of the schedule that the two words of the model's rule give.
        worst: sup |r_L| over [1/κ, 1] where singular values fill it, else None.
        worst_bound: what no polynomial of that degree can beat there.
        found: the best schedule, its bound, the optima, and the basin of the trained one.
    """

    name: str
    error: float
    worst: float | None
    worst_bound: float | None
    found: Schedule

    @property
    def ratio(self) -> float:
        return self.error / self.found.error

    @property
    def basin(self) -> int:
        """The number of the optimum that descent from the trained schedule ends in; the best found is 0."""
        return self.found.placed[0].optimum


def place(name: str, starts: int, seed: int) -> Placement | None:
    """A model that ships, or None where its rule has no closed form."""
    form = closed_form(unroll(zoo.load(name).double()))
    if form is None:
        return None
    spectrum, norm = spectrum_of(zoo.family(name), seed)
    eta, gamma = in_units(form, norm)
    found = optimal_schedule(
        spectrum.kappa, form.depth, spectrum=spectrum, criterion="rms", starts=starts, seed=seed, initial=[(eta, gamma)]
    )
    worst = worst_bound = None
    if spectrum.whole:
        grid = spectrum.grid((3**form.depth - 1) // 2, fine=True)
        worst = float(replace(form, eta=eta, gamma=gamma).evaluate(grid)[1].abs().max())
        worst_bound = polynomial_bound(spectrum.kappa, form.depth)
    return Placement(name, found.placed[0].error, worst, worst_bound, found)


def in_units(form: ClosedForm, norm: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coefficients for inputs in units of a norm."""
    return tuple(eta * norm**2 for eta in form.eta), tuple(gamma * norm**2 for gamma in form.gamma)


def spectrum_of(family: PromptFamily, seed: int) -> tuple[Spectrum, float]:
    """Where errors of a family's prompts count, in units of its largest ‖A‖₂, and that norm.

    Raises:
        ValueError: a family other than LogUniformSpectrum and CovarianceFactors.
    """
    if isinstance(family, LogUniformSpectrum):
        return Spectrum.log_uniform(family.kappa, family.rank_of_A), family.scale
    if isinstance(family, CovarianceFactors):
        return _sampled(family, seed)
    raise ValueError(f"spectrum_of: {type(family).__name__} is unknown; known: LogUniformSpectrum, CovarianceFactors")


def _sampled(family: CovarianceFactors, seed: int) -> tuple[Spectrum, float]:
    """Singular values of the prompts without the hundredth of largest norm, on which rules may diverge, each with the
    share of ‖D*‖² that its direction carries. Products between directions are left out. Binned."""
    prompts, kept = family.sample(PROMPTS, seed=seed), slice(None, family.rank)
    U, sigma, V = torch.linalg.svd(prompts.A, full_matrices=False)
    answer = (U.mT @ prompts.C)[:, kept].square().sum(2) / sigma[:, kept].square()
    weight = (V @ prompts.B.mT)[:, kept].square().sum(2) * answer
    inside = sigma[:, 0] <= sigma[:, 0].quantile(CENTRAL)
    sigma, weight = sigma[inside][:, kept], weight[inside]
    g, weight = _binned((sigma / sigma.max()).square().flatten(), weight.flatten())
    return Spectrum(g, weight / weight.sum(), float(g.min() ** -0.5), whole=False), float(sigma.max())


def _binned(g: Float[Tensor, " value"], weight: Float[Tensor, " value"]) -> tuple[Tensor, Tensor]:
    """Equal bins of log g, each at its mean; the largest value by itself, because it is the norm."""
    position = g.log() / g.log().min()
    number = torch.where(g == g.max(), 0, 1 + (position * (BINS - 1)).long().clamp(max=BINS - 1))
    total = torch.zeros(BINS + 1, dtype=g.dtype).index_add(0, number, weight)
    mean = torch.zeros(BINS + 1, dtype=g.dtype).index_add(0, number, weight * g) / total
    return mean[total > 0], total[total > 0]


def text(placed: Sequence[Placement]) -> str:
    """A line a model."""
    lines = [
        "schedules of trained models: rms error on the training spectrum",
        f"{'model':<15}{'L':>3}{'trained':>11}{'best found':>12}{'ratio':>8}{'bound':>11}{'gap':>9}"
        f"{'basin':>20}{'sup':>11}{'sup bound':>11}",
    ]
    for model in placed:
        found = model.found
        basin = "the best found" if model.basin == 0 else f"no. {model.basin}, {found.optima[model.basin].error:.2e}"
        sup = "" if model.worst is None else f"{model.worst:>11.2e}{model.worst_bound:>11.2e}"
        gap = f"{model.error / found.bound:>9.3g}" if found.bound > 0 else f"{'–':>9}"
        lines.append(
            f"{model.name:<15}{found.depth:>3}{model.error:>11.3e}{found.error:>12.3e}{model.ratio:>8.3f}"
            f"{found.bound:>11.2e}{gap}{basin:>20}{sup}"
        )
    for model in placed:
        steps = ", ".join(f"({abs(e):.3g}, {c:.3g})" for e, c in zip(*model.found.optima[0].unit_free, strict=True))
        count = f"{model.found.optima[0].starts} of {model.found.starts} starts, {len(model.found.optima)} optima"
        lines.append(f"{model.name}: best found (|η_l|, γ_l)‖A_l‖² = {steps}; from {count}")
    return "\n".join(lines)
