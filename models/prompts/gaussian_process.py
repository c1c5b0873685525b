"""In-context regression on functions of a Gaussian process, for which kernel ridge regression is the best answer."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.covariance import Covariance
from interp.layout import BlockLayout, Visibility
from models.prompts.alternating import Sequences, interleaved
from models.prompts.completion import assemble
from models.prompts.family import Draw, PromptFamily, check_at_least_one, check_positive
from models.prompts.random import gaussian, white_noise
from models.prompts.value import Prompts

PAIR, ALTERNATING = "pair", "alternating"
JITTER = 1e-10


@dataclass(frozen=True)
class GaussianProcess(PromptFamily):
    """f ~ GP(0, k), y = f(x) + noise of variance `lam`; the target is f at the queries, without noise.

    Inputs are uniform in [−1, 1]^d. With `clustered` > 0 each input is, with that probability, drawn around a centre of
    its prompt instead (normal, deviation `cluster_width`, the centre uniform in the cube, clamped to it): the sums of a
    row of K then differ much from row to row, which is what tells preconditioned iterations from plain ones (MATH §7).

    Formats: "pair" has one token (x, y) a point and (x_q, 0) a query; context rows see the context, a query the context
    and itself. "alternating" has x_1, y_1, x_2, y_2, … x_q in tokens of their own, one query, and a causal mask.

    Args:
        n, d: context points and input columns.      n_query: queries a prompt; 1 for "alternating".
        covariance, lengthscale: of k (`interp.covariance.Covariance`).
        lam: λ, the variance of the noise, 0 or more.
        clustered, cluster_width: see above.         token_format: "pair" or "alternating".

    Raises:
        ValueError: a size below 1, an unknown covariance or format, a lengthscale or width that is not positive, λ < 0,
            a share outside [0, 1], several queries in the alternating format.
    """

    n: int = 32
    d: int = 1
    n_query: int = 1
    covariance: str = "rbf"
    lengthscale: float = 0.3
    lam: float = 0.05
    clustered: float = 0.0
    cluster_width: float = 0.05
    token_format: str = PAIR

    def __post_init__(self) -> None:
        check_at_least_one(self, {name: getattr(self, name) for name in ("n", "d", "n_query")})
        check_positive(self, {"cluster_width": self.cluster_width})
        Covariance(self.covariance, self.lengthscale)
        if not 0 <= self.lam < float("inf"):
            raise ValueError(f"GaussianProcess: lam={self.lam} is the variance of the noise and must be 0 or more")
        if not 0 <= self.clustered <= 1:
            raise ValueError(f"GaussianProcess: clustered={self.clustered} is a share and must lie in [0, 1]")
        if self.token_format not in (PAIR, ALTERNATING):
            raise ValueError(
                f"GaussianProcess: unknown token_format {self.token_format!r}; known: {PAIR}, {ALTERNATING}"
            )
        if self.token_format == ALTERNATING and self.n_query > 1:
            raise ValueError(f"GaussianProcess: the alternating format takes one query, got n_query={self.n_query}")

    @property
    def kernel(self) -> Covariance:
        """k."""
        return Covariance(self.covariance, self.lengthscale)

    @property
    def widths(self) -> tuple[int, int]:
        return self.d, 1

    @property
    def queries(self) -> int:
        return self.n_query

    def inputs(self, count: int, generator: torch.Generator) -> Float[Tensor, "batch point x"]:
        """The inputs of context and queries, in that order."""
        points = self.n + self.n_query
        x = 2 * torch.rand(count, points, self.d, generator=generator, dtype=torch.float64) - 1
        if not self.clustered:
            return x
        centre = 2 * torch.rand(count, 1, self.d, generator=generator, dtype=torch.float64) - 1
        near = (centre + white_noise(self.cluster_width, x.shape, generator)).clamp(-1, 1)
        chosen = torch.rand(count, points, 1, generator=generator, dtype=torch.float64) < self.clustered
        return torch.where(chosen, near, x)

    def functions(
        self, x: Float[Tensor, "batch point x"], generator: torch.Generator
    ) -> Float[Tensor, "batch point 1"]:
        """f at the points [batch, point, 1], by the Cholesky factor of K + 1e-10 I."""
        K = self.kernel(x, x)
        K.diagonal(dim1=-2, dim2=-1).add_(JITTER)
        return torch.linalg.cholesky(K) @ gaussian((*x.shape[:2], 1), generator)

    def draw(self, count: int, generator: torch.Generator) -> Draw:
        x = self.inputs(count, generator)
        f = self.functions(x, generator)
        y = f[:, : self.n] + white_noise(self.lam**0.5, (count, self.n, 1), generator)
        return assemble(x[:, : self.n], x[:, self.n :], y), f[:, self.n :]

    def sample(
        self, count: int, *, seed: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> Prompts:
        prompts = super().sample(count, seed=seed, dtype=dtype, device=device)
        return interleaved(prompts) if self.token_format == ALTERNATING else prompts

    def sequences(
        self, count: int, *, seed: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> Sequences:
        """Alternating prompts in which the target is f at every point, not at the query alone."""
        generator = torch.Generator().manual_seed(seed)
        x = self.inputs(count, generator)
        f = self.functions(x, generator)
        y = f + white_noise(self.lam**0.5, f.shape, generator)
        rows = assemble(x[:, : self.n], x[:, self.n :], y[:, : self.n])
        tokens = interleaved(Prompts(rows, f[:, self.n :])).tokens
        return Sequences(tokens.to(device, dtype), f.to(device, dtype))

    def layout(self, sign: float = 1.0) -> BlockLayout:
        """x columns, then y; who sees whom follows from the format."""
        causal = Visibility("causal", "causal")
        visibility = causal if self.token_format == ALTERNATING else Visibility("context", "context_and_self")
        return BlockLayout.standard(x=self.d, y=1, n_query=self.n_query, visibility=visibility, sign=float(sign))

    def edges(self) -> dict[str, PromptFamily]:
        """Half as many points, other lengthscales, and inputs that cluster."""
        edges: dict[str, PromptFamily] = {
            f"ℓ × {factor:g}": replace(self, lengthscale=factor * self.lengthscale) for factor in (0.5, 2.0)
        }
        if self.n > 1:
            edges[f"n = {self.n // 2}"] = replace(self, n=self.n // 2)
        return edges | {"60 % clustered": replace(self, clustered=0.6)}
