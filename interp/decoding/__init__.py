"""Decoding: implicit weights, their sensitivity to the labels and the inverse Hessian, read out of the activations, and
what happens to the prediction where they are changed."""

from interp.decoding.causal import interchange, write_weights
from interp.decoding.decode import decode
from interp.decoding.hessian import InverseHessian
from interp.decoding.moves import Interchange, Written
from interp.decoding.result import ClosedFormDistance, Decoding
from interp.decoding.steering import Steering, steer

__all__ = [
    "ClosedFormDistance",
    "Decoding",
    "Interchange",
    "InverseHessian",
    "Steering",
    "Written",
    "decode",
    "interchange",
    "steer",
    "write_weights",
]
