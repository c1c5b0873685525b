"""What heads and MLPs compute on prompts of Gaussian processes: scores, operators, token quantities (MATH §6–7)."""

from interp.heads.decodable import Decodable
from interp.heads.mlps import FEATURES, MLPFit
from interp.heads.operator import OperatorFit
from interp.heads.points import Points, Route
from interp.heads.read import read_heads
from interp.heads.report import HeadFit, HeadsReport
from interp.heads.scores import FORMS, Form, ScoreFit, attention

__all__ = [
    "FEATURES",
    "FORMS",
    "Decodable",
    "Form",
    "HeadFit",
    "HeadsReport",
    "MLPFit",
    "OperatorFit",
    "Points",
    "Route",
    "ScoreFit",
    "attention",
    "read_heads",
]
