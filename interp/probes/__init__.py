"""Probes of activations with their controls: ridge and small-MLP, streamed over batches (MATH §5)."""

from interp.probes.erase import Eraser, eraser
from interp.probes.estimators import MLPProbe, RidgeProbe
from interp.probes.moments import Moments
from interp.probes.probe import PENALTIES, Settings, probe, probe_all
from interp.probes.readings import READINGS, Reading
from interp.probes.report import LayerScore, ProbeReport
from interp.probes.targets import TARGETS
from interp.probes.untrained import randomised

__all__ = [
    "PENALTIES",
    "READINGS",
    "TARGETS",
    "Eraser",
    "LayerScore",
    "MLPProbe",
    "Moments",
    "ProbeReport",
    "Reading",
    "RidgeProbe",
    "Settings",
    "eraser",
    "probe",
    "probe_all",
    "randomised",
]
