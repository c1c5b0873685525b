"""The criteria of every claim, each fixed before it was measured, but for two that were tightened since.

A change of a criterion is a change of these files, and their history says when and why. "EAGLE" in the places is Lutz,
Gangrade, Daneshmand and Saligrama 2025, arXiv 2509.19702. Signs as everywhere: η < 0 < γ in units of 1/‖A_l‖²;
κ = κ(A); errors of weights w are relative to the least-squares solution, rms over prompts.
"""

from analyses.claims.criteria.consequences import CONSEQUENCES
from analyses.claims.criteria.decoding import DECODING
from analyses.claims.criteria.processes import PROCESSES
from analyses.claims.criteria.solver import SOLVER
from analyses.claims.criteria.trained import TRAINED
from analyses.claims.criteria.wording import WORDING

CRITERIA = {**SOLVER, **TRAINED, **WORDING, **DECODING, **PROCESSES, **CONSEQUENCES}
