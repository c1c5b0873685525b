"""What no rule of a given depth can beat: the best polynomial r with r(0) = 1 of degree (3^L − 1)/2 (MATH §4)."""

import math

import numpy as np
import scipy.linalg
from torch import Tensor

from interp.solvers.spectra import Spectrum

CRITERIA = ("max", "rms")


def degree_of(depth: int) -> int:
    """The degree of r_L in g: every layer makes it three times as large, plus one."""
    return (3**depth - 1) // 2


def polynomial_bound(
    kappa: float, depth: int, criterion: str = "max", spectrum: str | Tensor | Spectrum = "interval"
) -> float:
    """The least relative error in w over all polynomials r of degree (3^L − 1)/2 with r(0) = 1.

    "max": sup |r| over [1/κ², 1] is 1/T_m((1 + a)/(1 − a)), a = 1/κ² (the spectrum plays no part). "rms": the root of
    the weighted mean of r² over the spectrum, by least squares in a Chebyshev basis. A schedule has 2L − 1 numbers and
    such a polynomial (3^L − 1)/2: from L = 2 on the bound need not be reached.

    Raises:
        ValueError: κ not above 1, depth below 1, an unknown criterion or spectrum.
    """
    check_problem("polynomial_bound", depth, criterion)
    chosen, degree = Spectrum.of(spectrum, kappa), degree_of(depth)
    centre = (1 + chosen.low) / (1 - chosen.low)
    if criterion == "max":
        exponent = degree * math.acosh(centre)
        return 1 / math.cosh(exponent) if exponent < 700 else 0.0
    root = chosen.weight.sqrt().numpy()
    if (root > 0).sum() <= degree:
        return 0.0  # a sample of so few eigenvalues can be met by the roots
    position = (2 * chosen.g.numpy() - 1 - chosen.low) / (1 - chosen.low)
    basis = np.polynomial.chebyshev.chebvander(position, degree) * root[:, None]
    triangle = np.asarray(np.linalg.qr(basis, mode="r"))
    at_zero = np.polynomial.chebyshev.chebvander(np.array([-centre]), degree)[0]
    return float(1 / np.linalg.norm(scipy.linalg.solve_triangular(triangle.T, at_zero, lower=True)))


def check_problem(owner: str, depth: int, criterion: str) -> None:
    if not isinstance(depth, int) or depth < 1:
        raise ValueError(f"{owner}: depth={depth} must be a whole number of at least 1")
    if criterion not in CRITERIA:
        raise ValueError(f"{owner}: criterion {criterion!r} is unknown; known criteria: {', '.join(CRITERIA)}")
