"""Numerical solvers, one algorithm a file; `iterate` is the one loop. Trajectories are [step, batch, d, out]."""

from interp.solvers.conjugate_gradient import ConjugateGradient
from interp.solvers.gradient_descent import GradientDescent
from interp.solvers.iterate import LeastSquares, Solver, iterate
from interp.solvers.newton_schulz import NewtonSchulz

__all__ = ["ConjugateGradient", "GradientDescent", "LeastSquares", "NewtonSchulz", "Solver", "iterate"]
