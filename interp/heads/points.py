"""Which rows of the tokens hold the points of a prompt, and the routes that attention takes between them."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.covariance import Covariance
from interp.kernel_rows import KernelRows, sees_the_past
from interp.layout import BlockLayout
from interp.unrolling.moments import check_prompts


@dataclass(frozen=True, eq=False)
class Route:
    """Rows that attend and keys that are attended to, each at an input: scores are functions of the two.

    Args:
        name: "context → points", "query → points"; in alternating prompts "inputs → labels" and so on.
        rows, keys: their places among the tokens.     row_x, key_x: the inputs of their points.
        key_terms: functions of the key alone: x, ‖x‖², where keys hold labels y and y², and where there are positions
            the place.
    """

    name: str
    rows: Int[Tensor, "row"]
    keys: Int[Tensor, "key"]
    row_x: Float[Tensor, "batch row x"]
    key_x: Float[Tensor, "batch key x"]
    key_terms: Float[Tensor, "batch key term"]

    def visible(self, layout: BlockLayout, n_tokens: int, n_heads: int) -> Bool[Tensor, "head row key"]:
        """Which keys the rows see."""
        return layout.allowed(n_tokens, n_heads)[:, self.rows][:, :, self.keys]

    def part(self, weights: Float[Tensor, "batch head token token"]) -> Float[Tensor, "batch head row key"]:
        """Scores or patterns of this route."""
        return weights[:, :, self.rows][..., self.keys]


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a batch of prompts and the tokens that hold them.

    Pair prompts have a token (x, y) a point, alternating ones (x, 0) and then (0, y); tokens that a construction puts
    in front (BOS) hold no point.
    """

    tokens: Float[Tensor, "batch token d_in"]
    x: Float[Tensor, "batch n x"]
    y: Float[Tensor, "batch n 1"]
    queries: Float[Tensor, "batch query x"]
    layout: BlockLayout
    alternating: bool

    @classmethod
    def of(cls, prompts: Any, layout: BlockLayout, tokens: Tensor | None = None) -> "Points":
        """The points of prompts with .A, .B, .C and .tokens; `tokens` as the model takes them, if they differ.

        Raises:
            ValueError: prompts without those parts, or tokens that are not those of the prompts.
        """
        if missing := [name for name in ("A", "B", "C", "tokens") if not hasattr(prompts, name)]:
            raise ValueError(
                f"prompts must have context A, C and queries B beside their tokens, and have no {missing[0]}; give "
                "GaussianProcess(…).sample(…)"
            )
        x, y, queries = (part.double() for part in (prompts.A, prompts.C, prompts.B))
        own, given = prompts.tokens, prompts.tokens if tokens is None else tokens
        given = check_prompts(given, layout)
        if len(given) != len(own) or given.shape[1] < own.shape[1]:
            raise ValueError(
                f"the tokens {list(given.shape)} are not those of the prompts, which have {list(own.shape)}"
            )
        return cls(given, x, y, queries, layout, own.shape[1] == 2 * x.shape[1] + queries.shape[1])

    @property
    def count(self) -> int:
        return len(self.tokens)

    @property
    def first(self) -> int:
        """How many tokens stand in front of the points."""
        n, q = self.x.shape[1], self.queries.shape[1]
        return self.tokens.shape[1] - q - (2 * n if self.alternating else n)

    @property
    def at(self) -> Int[Tensor, "n"]:
        """The tokens that hold the labels of the points."""
        n = self.x.shape[1]
        return self.first + (2 * torch.arange(n) + 1 if self.alternating else torch.arange(n))

    @property
    def asked(self) -> Int[Tensor, "query"]:
        """The tokens of the queries."""
        total = self.tokens.shape[1]
        return torch.arange(total - self.queries.shape[1], total)

    def few(self, count: int) -> "Points":
        """The first prompts."""
        tokens, x, y, queries = (part[:count] for part in (self.tokens, self.x, self.y, self.queries))
        return Points(tokens, x, y, queries, self.layout, self.alternating)

    def kernel_rows(self, covariance: Covariance, lam: float) -> KernelRows:
        """D, α, p and the sums of the points' kernel system, causal where the context rows are."""
        return KernelRows(self.x, self.y, covariance, lam, sees_the_past(self.layout))

    def routes(self) -> list[Route]:
        """Every way from rows at an input to keys at an input."""
        square = self.x.square().sum(-1, keepdim=True)
        plain, full = torch.cat([self.x, square], -1), torch.cat([self.x, square, self.y, self.y.square()], -1)
        if not self.alternating:
            context = Route("context → points", self.at, self.at, self.x, self.x, full)
            return [context, Route("query → points", self.asked, self.at, self.queries, self.x, full)]
        place = torch.linspace(0, 1, self.x.shape[1]).to(self.x)[None, :, None].expand(self.count, -1, -1)
        plain, full = torch.cat([plain, place], -1), torch.cat([full, place], -1)
        inputs, everywhere = self.at - 1, torch.cat([self.x, self.queries], 1)
        asking = torch.cat([inputs, self.asked])
        return [
            Route("inputs → inputs", asking, inputs, everywhere, self.x, plain),
            Route("inputs → labels", asking, self.at, everywhere, self.x, full),
            Route("labels → inputs", self.at, inputs, self.x, self.x, plain),
            Route("labels → labels", self.at, self.at, self.x, self.x, full),
        ]
