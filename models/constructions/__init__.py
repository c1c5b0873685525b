"""Known algorithms written down as weights: the ground truth for whatever reads algorithms out of weights."""

from models.constructions.alternating import alternating_gradient_descent
from models.constructions.averaging import averaging
from models.constructions.chebyshev import chebyshev_nodes
from models.constructions.construction import Construction, PromptShape, embed
from models.constructions.distributed import distributed_eagle, one_head_a_machine
from models.constructions.draws import CONSTRUCTIONS, VARIANTS
from models.constructions.eagle import T3, THEORY, eagle, gd_plus_plus, scheduled_eagle
from models.constructions.functional import functional_gradient_descent
from models.constructions.gradient_descent import gradient_descent, scheduled_gradient_descent
from models.constructions.heavy_ball import heavy_ball
from models.constructions.preconditioned import preconditioned_gradient_descent
from models.constructions.rank_limited import rank_limited_eagle
from models.constructions.richardson import richardson
from models.constructions.richardson_sizes import richardson_for_error
from models.constructions.ridge import ridge_gradient_descent

__all__ = [
    "CONSTRUCTIONS",
    "T3",
    "THEORY",
    "VARIANTS",
    "Construction",
    "PromptShape",
    "alternating_gradient_descent",
    "averaging",
    "chebyshev_nodes",
    "distributed_eagle",
    "eagle",
    "embed",
    "functional_gradient_descent",
    "gd_plus_plus",
    "gradient_descent",
    "heavy_ball",
    "one_head_a_machine",
    "preconditioned_gradient_descent",
    "rank_limited_eagle",
    "richardson",
    "richardson_for_error",
    "ridge_gradient_descent",
    "scheduled_eagle",
    "scheduled_gradient_descent",
]
