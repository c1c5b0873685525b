"""What no rule of a given depth can beat: the best polynomial r with r(0) = 1 of degree (3^L − 1)/2 (MATH §4)."""

import math

import numpy as np
import scipy.linalg
import scipy.optimize
from torch import Tensor

from interp.solvers.spectra import Spectrum

CRITERIA = ("max", "rms")


def degree_of(depth: int) -> int:
    """The degree of r_L in g: every layer makes it three times as large, plus one."""
    return (3**depth - 1) // 2


def polynomial_bound(
    kappa: float, depth: int, criterion: str = "max", spectrum: str | Tensor | Spectrum = "interval"
) -> float:
    """The least relative error in w over all polynomials r of degree m = (3^L − 1)/2 with r(0) = 1.

    "max": sup |r| over [1/κ², 1] is 1/T_m((1 + a)/(1 − a)), a = 1/κ² (the spectrum plays no part); over a sample of
    singular values max |r| at these alone, by a linear programme. "rms": the root of the weighted mean of r² over the
    spectrum, by least squares in a Chebyshev basis. A sample of at most m distinct values has the bound 0: r can vanish
    at all of them. A schedule has 2L − 1 numbers and such a polynomial m: from L = 2 on the bound need not be reached.

    Raises:
        ValueError: κ not above 1, depth below 1, an unknown criterion or spectrum.
    """
    check_problem("polynomial_bound", depth, criterion)
    chosen, degree = Spectrum.of(spectrum, kappa), degree_of(depth)
    centre = (1 + chosen.low) / (1 - chosen.low)
    if criterion == "max" and chosen.whole:
        exponent = degree * math.acosh(centre)
        return 1 / math.cosh(exponent) if exponent < 700 else 0.0
    g, place = np.unique(chosen.g.numpy(), return_inverse=True)
    weight = np.bincount(place.ravel(), chosen.weight.numpy())
    if (weight > 0).sum() <= degree:
        return 0.0
    basis = np.polynomial.chebyshev.chebvander((2 * g - 1 - chosen.low) / (1 - chosen.low), degree)
    at_zero = np.polynomial.chebyshev.chebvander(np.array([-centre]), degree)[0]
    return _least_maximum(basis, at_zero) if criterion == "max" else _least_mean(basis, at_zero, np.sqrt(weight))


def _least_maximum(basis: np.ndarray, at_zero: np.ndarray) -> float:
    """The least max |r| at the points of the basis: 1 / max p(0) over polynomials with |p| ≤ 1 at them."""
    size = np.abs(at_zero).max()
    rows = np.concatenate([basis, -basis])
    solved = scipy.optimize.linprog(-at_zero / size, rows, np.ones(len(rows)), bounds=(None, None))
    if solved.x is None:
        raise ValueError(f"polynomial_bound: no solution was found ({solved.message}); thin out the sample")
    return float(1 / (size * -solved.fun))


def _least_mean(basis: np.ndarray, at_zero: np.ndarray, root: np.ndarray) -> float:
    triangle = np.asarray(np.linalg.qr(basis * root[:, None], mode="r"))
    return float(1 / np.linalg.norm(scipy.linalg.solve_triangular(triangle.T, at_zero, lower=True)))


def check_problem(owner: str, depth: int, criterion: str) -> None:
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"{owner}: depth={depth} must be a whole number of at least 1")
    if criterion not in CRITERIA:
        raise ValueError(f"{owner}: criterion {criterion!r} is unknown; known criteria: {', '.join(CRITERIA)}")
