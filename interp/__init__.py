"""Read the numerical algorithm out of a transformer's forward pass, with a certificate."""

from interp.layout import BlockLayout, Visibility

__all__ = ["BlockLayout", "Visibility"]
