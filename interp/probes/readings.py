"""How activations at a hook become the features of a linear probe."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.probes.targets import BY_ROW, input_block, row_role

READINGS = ("token", "pooled", "weighted", "rows", "queries", "second-moment")
ROLES = ("context", "query", "all", "label")  # label: the label tokens of alternating prompts
ENTRIES, MOMENTS = "entries", "second moments"  # of the prompt, for the control without the model
LINEAR = ("token", "pooled", "weighted")  # linear in the rows of the stream


@dataclass(frozen=True)
class Reading:
    """One of `READINGS`, from activations [batch, token, ...], whose further axes are flattened.

    token: the row `index`.              pooled: the mean over the rows of a `role`.
    weighted: Σ_t a_t z_t over all rows with learned a_t (`fit_weighted`).
    rows: each row of a `role` is a sample, for targets that have a value a row (prediction, dual).
    queries: the query rows of the same prompt with the unit vectors in place of its queries, side by side.
    second-moment: Σ z zᵀ over the rows of a `role`, upper triangle.
    """

    kind: str
    index: int = -1
    role: str = "context"

    def __post_init__(self) -> None:
        if self.kind not in READINGS:
            raise ValueError(f"unknown reading {self.kind!r}; known: auto, {', '.join(READINGS)}")
        if self.role not in ROLES:
            raise ValueError(f"unknown role {self.role!r} of rows; known: {', '.join(ROLES)}")

    def __str__(self) -> str:
        about = {"token": f" {self.index}", "pooled": f" over {self.role}", "rows": f" of {self.role}"}
        return self.kind + about.get(self.kind, "") + (f" over {self.role}" if self.kind == "second-moment" else "")

    def check(self, target: str, layout: BlockLayout, n_tokens: int, alternating: bool = False) -> None:
        """Raise if the target has no value for what this reads, or the row does not exist."""
        if self.kind == "rows" and row_role(target, alternating) != self.role:
            known = ", ".join(f"{name} ({row_role(name, alternating)} rows)" for name in BY_ROW)
            raise ValueError(
                f"the target {target!r} has no value for each of the {self.role} rows; targets that have: {known}"
            )
        if self.kind == "token" and not -n_tokens <= self.index < n_tokens:
            raise ValueError(f"the prompts have {n_tokens} rows, and there is no row {self.index}")
        layout.n_context(n_tokens)

    def features(
        self, z: Float[Tensor, "batch token width"], layout: BlockLayout
    ) -> Float[Tensor, "batch sample feature"]:
        """The features of a batch; one sample a prompt, or one a row for "rows"."""
        if self.kind == "token":
            return z[:, self.index, None]
        if self.kind == "weighted":
            return z.flatten(1)[:, None]
        if self.kind == "queries":
            return z[:, -layout.n_query :].flatten(1)[:, None]
        n = layout.n_context(z.shape[1])
        z = {"all": z, "context": z[:, :n], "query": z[:, n:], "label": z[:, 1:n:2]}[self.role]
        if self.kind == "rows":
            return z
        if self.kind == "pooled":
            return z.mean(1, keepdim=True)
        upper = torch.triu_indices(z.shape[2], z.shape[2], device=z.device)
        return (z.mT @ z)[:, None, upper[0], upper[1]]

    def prompts(
        self, tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout
    ) -> list[Float[Tensor, "batch token d_in"]]:
        """The prompts that the model runs: the given ones, or for "queries" copies with the unit vectors as queries.

        d unit vectors in groups of n_query rows, the last group filled up with zero rows.
        """
        if self.kind != "queries":
            return [tokens]
        x, copies = layout.slices[input_block(layout)], []
        d = x.stop - x.start
        for start in range(0, d, layout.n_query):
            rows = layout.coordinates(tokens).clone()
            rows[:, -layout.n_query :] = 0
            for offset, axis in enumerate(range(start, min(start + layout.n_query, d))):
                rows[:, -layout.n_query + offset, x.start + axis] = 1
            copies.append(rows @ layout.basis.T.to(rows))
        return copies

    def samples(self, values: Float[Tensor, "batch row column"]) -> Float[Tensor, "batch sample column"]:
        """The target's values beside the features: one row of them a sample, all side by side for one a prompt."""
        return values if self.kind == "rows" else values.flatten(1)[:, None]

    def of_the_prompt(
        self, tokens: Float[Tensor, "batch token d_in"], layout: BlockLayout
    ) -> dict[str, Float[Tensor, "batch sample feature"]]:
        """What the baseline sees, the prompt without the model, in two ways.

        entries: all of them side by side, which holds whatever a token, a mean or weights could read; for rows each
        with its own. Nothing linear in them tells w, AᵀC or AᵀA, which are even in each row (R² ≤ 0).
        second moments: Σ z zᵀ of the context rows, upper triangle, of which AᵀC and AᵀA are parts; for the reading
        second-moment those of its own rows; for rows those of the prompt beside each row, which by the same parity
        tell nothing of a target that is odd in the row.
        """
        own = self if self.kind == "second-moment" else Reading("second-moment")
        moments = own.features(tokens, layout)
        if self.kind != "rows":
            return {ENTRIES: tokens.flatten(1)[:, None], MOMENTS: moments}
        rows = self.features(tokens, layout)
        return {ENTRIES: rows, MOMENTS: moments.expand(-1, rows.shape[1], -1)}


def default_reading(target: str, odd: bool, alternating: bool = False) -> Reading:
    """The reading of "auto".

    Each row its own value where the target has one a row. Else unit queries: a query row answers for its own input, so
    it holds B w and, as far as the model is odd in the query, nothing linear in w itself. For a model that is exactly
    odd in each token unit queries hold nothing of AᵀA beyond what the labels carry: second moments (MATH §5).
    """
    if (role := row_role(target, alternating)) is not None:
        return Reading("rows", role=role)
    return Reading("second-moment") if odd and target == "hessian" else Reading("queries")
