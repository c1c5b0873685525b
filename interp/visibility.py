"""Who may attend to whom: named rules for context rows and query rows. Part of the vocabulary of `interp.layout`."""

import re
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
ONE_MACHINE = re.compile(r"machine (0|[1-9][0-9]*)")
"""The rules "machine 0", "machine 1", …: a head that serves one machine. Only that machine's rows are seen, by the
query rows and by themselves; the context rows of the other machines see nothing."""


def machine_of(rule: str) -> int | None:
    """k of the rule "machine k", None for every other rule."""
    found = ONE_MACHINE.fullmatch(rule)
    return int(found[1]) if found else None


def describe_rule(rule: str) -> str:
    """The rows that a rule names, in words."""
    return RULES.get(rule, f"the context rows of {rule}")


@dataclass(frozen=True)
class Visibility:
    """Which rows a context row and a query row see, by the names in `RULES`, or "machine k" for the rows of machine k.

    A head that only queries use is `Visibility(context="none", query="context")`; one that serves machine 1 and tells
    the queries about it is `Visibility(context="machine 1", query="machine 1")`.
    """

    context: str = "context"
    query: str = "context"

    def __post_init__(self) -> None:
        for role in ROLES:
            if self.of(role) not in RULES and machine_of(self.of(role)) is None:
                known = f"{', '.join(RULES)}, machine 0, machine 1, …"
                raise ValueError(f"Visibility: unknown rule {self.of(role)!r}; known rules: {known}")
        if self.query == "machine":
            raise ValueError("Visibility: query rows belong to no machine; give them 'context', 'all' or 'none'")

    def of(self, role: str) -> str:
        return getattr(self, role)

    @property
    def leaves_rows_blind(self) -> bool:
        """Are there rows that see nothing."""
        return "none" in (self.context, self.query) or machine_of(self.context) is not None


def visibility_mask(
    visibility: Visibility, n_tokens: int, n_context: int, machines: int
) -> Bool[Tensor, "token token"]:
    """mask[i, k]: does row i see row k; the first `n_context` rows follow the rule of context rows."""
    context, query = (_rule_mask(visibility.of(role), n_tokens, n_context, machines) for role in ROLES)
    context, query = context[:n_context], query[n_context:]
    if (served := machine_of(visibility.context)) is not None:
        size = n_context // machines
        context = context & (torch.arange(n_context) // size == served)[:, None]
    return torch.cat([context, query])


def _rule_mask(rule: str, n_tokens: int, n_context: int, machines: int) -> Bool[Tensor, "token token"]:
    row = torch.arange(n_tokens)
    own, context = row[:, None] == row, (row < n_context).expand(n_tokens, n_tokens)
    if (machine := machine_of(rule)) is not None:
        return context & (row // (n_context // machines) == machine)
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
