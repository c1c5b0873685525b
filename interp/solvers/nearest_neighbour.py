"""The label of the nearest inputs."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.solvers.problems import Quadratic
from interp.solvers.queries import check_queries
from interp.solvers.settings import rows


@dataclass(frozen=True)
class NearestNeighbours:
    """Prediction = mean label of the k rows of A nearest to the query in Euclidean distance. No iterates.

    Source: Cover and Hart 1967.
    """

    neighbours: int = 1

    def predict(self, problem: Quadratic, queries: Float[Tensor, "batch query d"]) -> Float[Tensor, "batch query out"]:
        A, C = rows("NearestNeighbours", problem)
        check_queries("NearestNeighbours", A, queries)
        if not 1 <= self.neighbours <= A.shape[1]:
            raise ValueError(
                f"NearestNeighbours: neighbours={self.neighbours} must lie between 1 and the {A.shape[1]} rows"
            )
        nearest = torch.cdist(queries, A).topk(self.neighbours, largest=False).indices
        prompts = torch.arange(len(A), device=A.device)[:, None, None]
        return C[prompts, nearest].mean(2)
