"""Who may attend to whom: named rules for context rows and query rows. Part of the vocabulary of `interp.layout`."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

ROLES = ("context", "query")
RULES = {
    "none": "no row",
    "context": "all context rows",
    "machine": "the context rows of its own machine",
    "context_and_self": "all context rows and itself",
    "causal": "itself and every row before it",
    "all": "every row",
}


@dataclass(frozen=True)
class Visibility:
    """Which rows a context row and a query row see, by the names in `RULES`.

    A head that only queries use is `Visibility(context="none", query="context")`.
    """

    context: str = "context"
    query: str = "context"

    def __post_init__(self) -> None:
        for role in ROLES:
            if self.of(role) not in RULES:
                raise ValueError(f"Visibility: unknown rule {self.of(role)!r}; known rules: {', '.join(RULES)}")
        if self.query == "machine":
            raise ValueError("Visibility: query rows belong to no machine; give them 'context', 'all' or 'none'")

    def of(self, role: str) -> str:
        return getattr(self, role)


def visibility_mask(
    visibility: Visibility, n_tokens: int, n_context: int, machines: int
) -> Bool[Tensor, "token token"]:
    """mask[i, k]: does row i see row k; the first `n_context` rows follow the rule of context rows."""
    context, query = (_rule_mask(visibility.of(role), n_tokens, n_context, machines) for role in ROLES)
    return torch.cat([context[:n_context], query[n_context:]])


def _rule_mask(rule: str, n_tokens: int, n_context: int, machines: int) -> Bool[Tensor, "token token"]:
    row = torch.arange(n_tokens)
    own, context = row[:, None] == row, (row < n_context).expand(n_tokens, n_tokens)
    match rule:
        case "none":
            return torch.zeros_like(own)
        case "context":
            return context
        case "machine":
            machine = row // (n_context // machines)
            return context & (machine[:, None] == machine)
        case "context_and_self":
            return context | own
        case "causal":
            return row[:, None] >= row
    return torch.ones_like(own)  # "all"
