"""Numerical solvers, one algorithm a file; `iterate` is the one loop. Trajectories are [step, batch, d, out].

Solvers of a quadratic take LeastSquares and KernelSystem alike: on a kernel system GradientDescent is Richardson
iteration and ClosedForm is kernel ridge regression; Preconditioned puts any of them in another metric.
"""

from interp.solvers.accelerated_distributed_eagle import AcceleratedDistributedEAGLE
from interp.solvers.averaging import Averaging
from interp.solvers.chebyshev import ChebyshevSemiIteration
from interp.solvers.chebyshev_nodes import ChebyshevNodes
from interp.solvers.closed_form import ClosedForm
from interp.solvers.conjugate_gradient import ConjugateGradient
from interp.solvers.dane import DANE
from interp.solvers.distributed_eagle import DistributedEAGLE
from interp.solvers.distributed_estimation import DistributedEstimation
from interp.solvers.eagle import EAGLE, T3, THEORY
from interp.solvers.extracted_rule import ExtractedRule
from interp.solvers.functional_gradient_descent import FunctionalGradientDescent
from interp.solvers.gd_plus_plus import GDPlusPlus
from interp.solvers.gradient_averaging import GradientAveraging
from interp.solvers.gradient_descent import GradientDescent
from interp.solvers.heavy_ball import HeavyBall
from interp.solvers.iterate import Solver, iterate, states
from interp.solvers.least_mean_squares import LeastMeanSquares
from interp.solvers.low_rank_newton import LowRankNewton
from interp.solvers.nearest_neighbour import NearestNeighbours
from interp.solvers.nesterov import Nesterov
from interp.solvers.newton import Newton
from interp.solvers.newton_schulz import NewtonSchulz
from interp.solvers.nystrom import Nystrom
from interp.solvers.polynomial_bound import polynomial_bound
from interp.solvers.preconditioned import Preconditioned
from interp.solvers.preconditioned_descent import PreconditionedDescent
from interp.solvers.preconditioners import jacobi, row_sums
from interp.solvers.problems import KernelSystem, LeastSquares
from interp.solvers.pseudo_inverse_eagle import PseudoInverseEAGLE
from interp.solvers.recursive_least_squares import RecursiveLeastSquares
from interp.solvers.schedules import Schedule, optimal_schedule
from interp.solvers.sketched_eagle import SketchedEAGLE
from interp.solvers.solve import Solution, solve
from interp.solvers.spectra import Spectrum
from interp.solvers.steepest_descent import SteepestDescent

__all__ = [
    "DANE",
    "EAGLE",
    "T3",
    "THEORY",
    "AcceleratedDistributedEAGLE",
    "Averaging",
    "ChebyshevNodes",
    "ChebyshevSemiIteration",
    "ClosedForm",
    "ConjugateGradient",
    "DistributedEAGLE",
    "DistributedEstimation",
    "ExtractedRule",
    "FunctionalGradientDescent",
    "GDPlusPlus",
    "GradientAveraging",
    "GradientDescent",
    "HeavyBall",
    "KernelSystem",
    "LeastMeanSquares",
    "LeastSquares",
    "LowRankNewton",
    "NearestNeighbours",
    "Nesterov",
    "Newton",
    "NewtonSchulz",
    "Nystrom",
    "Preconditioned",
    "PreconditionedDescent",
    "PseudoInverseEAGLE",
    "RecursiveLeastSquares",
    "Schedule",
    "SketchedEAGLE",
    "Solution",
    "Solver",
    "Spectrum",
    "SteepestDescent",
    "iterate",
    "jacobi",
    "optimal_schedule",
    "polynomial_bound",
    "row_sums",
    "solve",
    "states",
]
