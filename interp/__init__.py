"""Read the numerical algorithm out of a transformer's forward pass, with a certificate."""

from interp.layout import BlockLayout, Visibility
from interp.unrolling import certify, closed_form, unroll

__all__ = ["BlockLayout", "Visibility", "certify", "closed_form", "unroll"]
