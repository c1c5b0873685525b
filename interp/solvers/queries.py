"""The one check of query rows."""

from torch import Tensor


def check_queries(owner: str, A: Tensor, queries: Tensor) -> None:
    if queries.ndim != 3 or queries.shape[0] != len(A) or queries.shape[2] != A.shape[2] or queries.dtype != A.dtype:
        raise ValueError(
            f"{owner}: queries must be [{len(A)}, query, {A.shape[2]}] of {A.dtype}, "
            f"got {list(queries.shape)} of {queries.dtype}"
        )
