"""Masked-block completion: inputs with a pinned log-uniform spectrum, and the published factor model."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from models.prompts.family import (
    Draw,
    PromptFamily,
    check_at_least_one,
    check_noise,
    check_positive,
    check_rank,
    check_spectrum,
    scaled_edges,
)
from models.prompts.random import gaussian, haar_frames, log_uniform, white_noise

RANDOM, SPANNING = "random", "spanning"


@dataclass(frozen=True)
class LogUniformSpectrum(PromptFamily):
    """Regression prompts whose inputs have singular values spread over [1/κ, 1].

        A = U diag(σ) Vᵀ,  U and V Haar, log σ uniform in [-log κ, 0] with both ends pinned (‖A‖₂ = 1, κ(A) = κ)
        C = A W,  B = E Vᵀ,  D* = B W = B A⁺ C,  entries of E standard normal, of W normal with variance 1/d

    so that labels and inputs have one size, and queries are isotropic (in the row space of A if rank < d). Scalar
    prediction is n_query = d_out = 1.

    Args:
        n, d: context rows and x columns.        n_query, d_out: query rows and y columns.
        kappa: κ(A), at least 1.                 rank: of A; None for min(n, d).
        scale: multiplies the whole prompt.      noise: standard deviation of Gaussian noise on the labels C; the
            answer D* stays that of the labels without noise.

    Raises:
        ValueError: a size below 1, κ < 1, rank > min(n, d).
    """

    n: int
    d: int
    n_query: int = 1
    d_out: int = 1
    kappa: float = 10.0
    rank: int | None = None
    scale: float = 1.0
    noise: float = 0.0
    rows: str = RANDOM

    def __post_init__(self) -> None:
        check_at_least_one(self, {name: getattr(self, name) for name in ("n", "d", "n_query", "d_out")})
        check_rank(self, self.rank_of_A, self.n, self.d)
        check_spectrum(self, self.kappa, self.rank_of_A)
        check_positive(self, {"scale": self.scale})
        check_noise(self, self.noise)
        check_rows(self, self.rows, self.n_query, self.rank_of_A)

    @property
    def rank_of_A(self) -> int:
        return min(self.n, self.d) if self.rank is None else self.rank

    @property
    def widths(self) -> tuple[int, int]:
        return self.d, self.d_out

    @property
    def queries(self) -> int:
        return self.n_query

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        rank = self.rank_of_A
        sigma = log_uniform(count, rank, self.kappa, generator)
        left, right = haar_frames(count, self.n, rank, generator), haar_frames(count, self.d, rank, generator)
        weights = gaussian((count, self.d, self.d_out), generator) / math.sqrt(self.d)
        queries = query_rows(self.rows, gaussian((count, self.n_query, rank), generator))
        A, B = left * sigma[:, None] @ right.mT, queries @ right.mT
        tokens = self.scale * assemble(A, B, A @ weights)
        tokens[:, : self.n, self.d :] += white_noise(self.noise, (count, self.n, self.d_out), generator)
        return tokens, self.scale * B @ weights

    def edges(self) -> dict[str, PromptFamily]:
        edges = scaled_edges(self)
        if self.kappa > 1:
            edges[f"κ = {3 * self.kappa:g}"] = replace(self, kappa=3 * self.kappa)
        edges[f"n = {2 * self.n}"] = replace(self, n=2 * self.n, rank=self.rank_of_A)
        return edges

    def spanning(self) -> "LogUniformSpectrum":
        return replace(self, rows=SPANNING, n_query=self.rank_of_A)


@dataclass(frozen=True)
class CovarianceFactors(PromptFamily):
    """The published family of arXiv 2509.19702: products of Gaussian factors with a decaying covariance.

        Z_full = R₁ R₂ᵀ / √rank,  the rows of R₁ [n + n', rank] and R₂ [d + d', rank] drawn from N(0, Σ), Σ_ii = decay^i

    with i = 0 … rank - 1 (counted from 1 the prompts are the same times `decay`, and squared errors the same times its
    square). ‖A‖₂ and κ(A) vary from prompt to prompt and are unbounded; with the published numbers, which are the
    defaults, the median of κ(A) is about 70. There half of the prompts carry noise of variance 0.01; here `noise` is
    the same for all prompts, and 0 unless set.

    Args:
        n, d, n_query, d_out: context rows, x columns, query rows, y columns.
        rank: of the factors, at most min(n, d).
        decay: the ratio of consecutive variances, at most 1.
        scale: multiplies the whole prompt.
        noise: standard deviation of Gaussian noise on all that is seen (A, B, C); D* stays that without noise.

    Raises:
        ValueError: a size below 1, rank > min(n, d), decay outside (0, 1].
    """

    n: int = 18
    d: int = 18
    n_query: int = 2
    d_out: int = 2
    rank: int = 10
    decay: float = 0.7
    scale: float = 1.0
    noise: float = 0.0
    rows: str = RANDOM

    def __post_init__(self) -> None:
        check_at_least_one(self, {name: getattr(self, name) for name in ("n", "d", "n_query", "d_out")})
        check_rank(self, self.rank, self.n, self.d)
        check_positive(self, {"scale": self.scale})
        check_noise(self, self.noise)
        check_rows(self, self.rows, self.n_query, self.rank)
        if not 0 < self.decay <= 1:
            raise ValueError(f"CovarianceFactors: decay={self.decay} must lie in (0, 1]")

    @property
    def widths(self) -> tuple[int, int]:
        return self.d, self.d_out

    @property
    def queries(self) -> int:
        return self.n_query

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        deviation = self.decay ** (torch.arange(self.rank, dtype=torch.float64) / 2)
        context = gaussian((count, self.n, self.rank), generator)
        queries = query_rows(self.rows, gaussian((count, self.n_query, self.rank), generator))
        columns = deviation * gaussian((count, self.d + self.d_out, self.rank), generator)
        rows = deviation * torch.cat([context, queries], dim=1)
        full = self.scale / math.sqrt(self.rank) * rows @ columns.mT
        seen = full + white_noise(self.noise, full.shape, generator)
        A, C = seen[:, : self.n, : self.d], seen[:, : self.n, self.d :]
        return assemble(A, seen[:, self.n :, : self.d], C), full[:, self.n :, self.d :].contiguous()

    def edges(self) -> dict[str, PromptFamily]:
        decay = round(self.decay**1.5, 3)
        return {
            **scaled_edges(self),
            f"decay = {decay:g}": replace(self, decay=decay),
            f"n = {2 * self.n}": replace(self, n=2 * self.n),
        }

    def spanning(self) -> "CovarianceFactors | None":
        """None with noise, which falls on the queries too: it would count once for each spanning row."""
        return None if self.noise else replace(self, rows=SPANNING, n_query=self.rank)


def assemble(
    A: Float[Tensor, "batch context x"], B: Float[Tensor, "batch query x"], C: Float[Tensor, "batch context y"]
) -> Float[Tensor, "batch token d_model"]:
    """The prompt [[A, C], [B, 0]]."""
    masked = A.new_zeros(B.shape[0], B.shape[1], C.shape[2])
    return torch.cat([torch.cat([A, C], dim=2), torch.cat([B, masked], dim=2)], dim=1)


def query_rows(rows: str, drawn: Float[Tensor, "batch query rank"]) -> Float[Tensor, "batch query rank"]:
    """Coefficients of the query rows: as drawn, or the unit vectors that span the draw's distribution."""
    if rows == RANDOM:
        return drawn
    return torch.eye(drawn.shape[-1], dtype=drawn.dtype).expand(drawn.shape)


def check_rows(owner: object, rows: str, n_query: int, rank: int) -> None:
    """Raise unless the query rows are random, or exactly as many as span the row space."""
    if rows not in (RANDOM, SPANNING):
        raise ValueError(f"{type(owner).__name__}: unknown rows {rows!r}; known: {RANDOM}, {SPANNING}")
    if rows == SPANNING and n_query != rank:
        raise ValueError(f"{type(owner).__name__}: {rank} query rows span the row space, not n_query={n_query}")
