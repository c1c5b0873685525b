"""Comparison: which solver of the kernel system a model's layers follow, with controls (MATH §7)."""

from interp.comparison.candidates import CANDIDATES, PRECONDITIONED_RICHARDSON, RICHARDSON, choose
from interp.comparison.compare import compare
from interp.comparison.control import Control, Controlled
from interp.comparison.fan import Fan, fan
from interp.comparison.judge import NONE, Judged, Margin, Rules
from interp.comparison.measure import Measured, measure
from interp.comparison.metrics import METRICS
from interp.comparison.problems import Draws, Problems
from interp.comparison.readouts import OWN, TO_KRR, TO_TARGET
from interp.comparison.result import Comparison

__all__ = [
    "CANDIDATES",
    "METRICS",
    "NONE",
    "OWN",
    "PRECONDITIONED_RICHARDSON",
    "RICHARDSON",
    "TO_KRR",
    "TO_TARGET",
    "Comparison",
    "Control",
    "Controlled",
    "Draws",
    "Fan",
    "Judged",
    "Margin",
    "Measured",
    "Problems",
    "Rules",
    "choose",
    "compare",
    "fan",
    "measure",
]
