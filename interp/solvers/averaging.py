"""The mean label, whatever the query."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import Quadratic
from interp.solvers.queries import check_queries
from interp.solvers.settings import rows


@dataclass(frozen=True)
class Averaging:
    """Prediction = mean of the rows of C: the best constant in squared error. A baseline without iterates."""

    def predict(self, problem: Quadratic, queries: Float[Tensor, "batch query d"]) -> Float[Tensor, "batch query out"]:
        A, C = rows("Averaging", problem)
        check_queries("Averaging", A, queries)
        return C.mean(1, keepdim=True).expand(-1, queries.shape[1], -1)
