"""The best schedule of EAGLE's two step sizes for a spectrum and a depth: a minimax problem in 2L − 1 scalars."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.eagle import T3, THEORY
from interp.solvers.polynomial_bound import check_problem, degree_of, polynomial_bound
from interp.solvers.schedule_search import Goal, equalise, in_own_units, norms, residual, search
from interp.solvers.spectra import Spectrum

PUBLISHED = (-1.0, 1.9)
SAME_ERROR, SAME_STEPS = 1e-3, 2e-2


@dataclass(frozen=True)
class Optimum:
    """A local optimum, and how many of the starts ended here.

    Args:
        eta, gamma: by layer, for ‖A‖₂ = 1; the last η is 0, it reaches nothing.
        unit_free: η_l‖A_l‖² and γ_l‖A_l‖², ‖A_l‖ the largest on the spectrum.
        starts: random and named ones, without those in `initial`.
    """

    error: float
    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    unit_free: tuple[tuple[float, ...], tuple[float, ...]]
    starts: int


@dataclass(frozen=True)
class Placed:
    """A schedule that was given: its error, and the optimum (by number, the best is 0) that descent from it ends in."""

    error: float
    optimum: int


@dataclass(frozen=True)
class Schedule:
    """The best schedule that was found, and what else there is.

    Args:
        bound: what no polynomial of that degree with r(0) = 1 can beat on that spectrum (`polynomial_bound`).
        optima: all distinct local optima, the best first: errors within a thousandth and unit-free steps within 2 %.
        placed: the schedules given as `initial`, in their order.
        starts: how many random and named starts there were.
    """

    criterion: str
    kappa: float
    bound: float
    optima: tuple[Optimum, ...]
    placed: tuple[Placed, ...]
    starts: int

    @property
    def eta(self) -> tuple[float, ...]:
        return self.optima[0].eta

    @property
    def gamma(self) -> tuple[float, ...]:
        return self.optima[0].gamma

    @property
    def error(self) -> float:
        return self.optima[0].error

    @property
    def depth(self) -> int:
        return len(self.gamma)

    def __str__(self) -> str:
        best = self.optima[0]
        steps = ", ".join(f"({e:.3g}, {c:.3g})" for e, c in zip(*best.unit_free, strict=True))
        lines = [
            f"{self.criterion} error {self.error:.3e} at depth {self.depth}, κ = {self.kappa:g}; "
            f"no polynomial of degree {degree_of(self.depth)} is below {self.bound:.3e}",
            f"(η, γ) in units of 1/‖A_l‖²: {steps}",
            f"{len(self.optima)} local optima; the best from {best.starts} of {self.starts} starts",
        ]
        for number, given in enumerate(self.placed):
            end = f"in the basin of optimum {given.optimum}, {self.optima[given.optimum].error:.3e}"
            lines.append(f"given {number}: error {given.error:.3e}, {end}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def optimal_schedule(
    kappa: float,
    depth: int,
    *,
    spectrum: str | Tensor | Spectrum = "interval",
    criterion: str = "max",
    starts: int = 64,
    seed: int = 0,
    initial: Sequence[tuple[Sequence[float], Sequence[float]]] = (),
) -> Schedule:
    """η_l and γ_l that minimise the relative error in w after `depth` layers, for matrices with σ in [1/κ, 1].

    The error on an eigenvalue g = σ² is r_L(g) (MATH §4): "max" is sup |r_L| over the spectrum, for the names and for a
    Spectrum the whole of [1/κ², 1], for singular values these alone; "rms" is the root of the mean of r_L² over the
    spectrum, which is the rms relative error for isotropic w. The signs of η and γ are free. Search:
    Levenberg–Marquardt from all starts at once, for "max" on higher and higher powers and then by linear programmes on
    a fine grid. Global optimality is not proven: compare `bound`, and the number of starts that found the best.

    Args:
        spectrum: "interval" (g uniform), "log-uniform", a Spectrum, or singular values [*prompt, d] with σ_max = 1.
        starts: random ones, η‖A_l‖² in (−2, 0) and γ‖A_l‖² in (0.2, 2); theory, T₃, the published (−1, 1.9) and
            gradient descent are added.
        initial: schedules (η, γ) for ‖A‖₂ = 1, as trained ones, that are placed among the optima and start too.

    Raises:
        ValueError: κ not above 1, depth below 1, starts below 1, an unknown criterion or spectrum, or a schedule in
            `initial` of another depth or not finite.
    """
    check_problem("optimal_schedule", depth, criterion)
    if starts < 1:
        raise ValueError(f"optimal_schedule: starts={starts} must be at least 1")
    chosen = Spectrum.of(spectrum, kappa)
    given = _given(initial, depth)
    grid = chosen.grid(degree_of(depth), fine=criterion == "max")
    drawn = in_own_units(_drawn(depth, starts, seed), grid)
    found = _minima(torch.cat([drawn, given]), chosen, depth, criterion)
    errors = _errors(found, grid, chosen, criterion)
    group = _groups(errors, _unit_free(found, grid))
    optima = tuple(
        _optimum(found[group == number], errors[group == number], grid, int((group[: len(drawn)] == number).sum()))
        for number in range(int(group.max()) + 1)
    )
    before = _errors(given, grid, chosen, criterion).tolist()
    placed = tuple(Placed(error, int(at)) for error, at in zip(before, group[len(drawn) :], strict=True))
    return Schedule(criterion, kappa, polynomial_bound(kappa, depth, criterion, chosen), optima, placed, len(drawn))


def _given(initial: Sequence[tuple[Sequence[float], Sequence[float]]], depth: int) -> Float[Tensor, "start number"]:
    for eta, gamma in initial:
        if len(eta) not in (depth - 1, depth) or len(gamma) != depth:
            raise ValueError(
                f"optimal_schedule: a schedule of depth {depth} has that many η (the last may be left out) and γ, "
                f"got {len(eta)} and {len(gamma)}"
            )
    values = [[*tuple(eta)[: depth - 1], *gamma] for eta, gamma in initial]
    given = torch.tensor(values, dtype=torch.float64).reshape(-1, 2 * depth - 1)
    if not given.isfinite().all():
        raise ValueError("optimal_schedule: a schedule in `initial` holds NaN or inf")
    return given


def _drawn(depth: int, starts: int, seed: int) -> Float[Tensor, "start number"]:
    """Random and named starts in units of 1/‖A_l‖²."""
    uniform = torch.rand(starts, 2 * depth - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    random = torch.cat([-2 * uniform[:, : depth - 1], 0.2 + 1.8 * uniform[:, depth - 1 :]], dim=1)
    named = [[eta] * (depth - 1) + [gamma] * depth for eta, gamma in (THEORY, T3, PUBLISHED, (0.0, 1.0))]
    return torch.cat([random, torch.tensor(named, dtype=torch.float64)])


def _minima(starts: Tensor, spectrum: Spectrum, depth: int, criterion: str) -> Float[Tensor, "start number"]:
    degree = degree_of(depth)
    if criterion == "rms":
        return search(starts, Goal(spectrum.g, spectrum.weight), largest=False)
    coarse, fine = spectrum.grid(degree), spectrum.grid(degree, fine=True)
    found = search(starts, Goal(coarse, torch.full_like(coarse, 1 / len(coarse))), largest=True)
    group = _groups(residual(found, fine).abs().amax(1), _unit_free(found, fine))
    for number in range(int(group.max()) + 1):  # one polish for all starts that came to the same place
        found[group == number] = equalise(found[int((group == number).nonzero()[0])], fine)
    return found


def _errors(parameters: Tensor, grid: Tensor, spectrum: Spectrum, criterion: str) -> Float[Tensor, "start"]:
    if criterion == "max":
        return residual(parameters, grid).abs().amax(1)
    return (residual(parameters, spectrum.g).square() * spectrum.weight).sum(1).sqrt()


def _unit_free(parameters: Tensor, grid: Tensor) -> Float[Tensor, "start number"]:
    square = norms(parameters, grid) ** 2
    return parameters * torch.cat([square[:, :-1], square], dim=1)


def _groups(errors: Float[Tensor, "start"], steps: Float[Tensor, "start number"]) -> Tensor:
    """The number of each start's optimum, the best 0."""
    group, number = torch.full((len(errors),), -1), 0
    for start in errors.argsort().tolist():
        if group[start] < 0:
            alike = (errors - errors[start]).abs() <= SAME_ERROR * errors[start]
            near = ((steps - steps[start]).abs() <= SAME_STEPS * steps[start].abs().clamp(min=1)).all(1)
            group[(group < 0) & alike & near] = number
            group[start] = number
            number += 1
    return group


def _optimum(parameters: Tensor, errors: Tensor, grid: Tensor, starts: int) -> Optimum:
    best = parameters[int(errors.argmin())]
    depth = (len(best) + 1) // 2
    steps, free = best.tolist(), _unit_free(best[None], grid)[0].tolist()
    eta, gamma = (*steps[: depth - 1], 0.0), tuple(steps[depth - 1 :])
    return Optimum(float(errors.min()), eta, gamma, ((*free[: depth - 1], 0.0), tuple(free[depth - 1 :])), starts)
