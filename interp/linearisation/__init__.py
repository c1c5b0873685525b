"""Models with norms, MLPs and softmax, linearised at given prompts, with how far that holds. Never an exact name."""

from interp.linearisation.affine import AffineMap, Linearisation, linearise
from interp.linearisation.frozen import Frozen, freeze
from interp.linearisation.validity import Validity, validity

__all__ = ["AffineMap", "Frozen", "Linearisation", "Validity", "freeze", "linearise", "validity"]
