"""Read the numerical algorithm out of a transformer's forward pass, with a certificate."""

from interp.ablation import ablate
from interp.comparison import compare
from interp.decoding import decode
from interp.identification import Identification, identify
from interp.layout import BlockLayout, Visibility
from interp.probes import probe
from interp.unrolling import certify, closed_form, unroll

__all__ = [
    "BlockLayout",
    "Identification",
    "Visibility",
    "ablate",
    "certify",
    "closed_form",
    "compare",
    "decode",
    "identify",
    "probe",
    "unroll",
]
