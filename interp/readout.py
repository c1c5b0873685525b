"""In which column does a model answer, and with which sign? Found by regression, where no layout says it.

Each target column is regressed, without a constant, on every column c of the last residual stream's query rows,

    slope_c = ⟨c, t⟩ / ⟨c, c⟩,      R²_c = 1 − ‖t − slope_c · c‖² / ‖t‖²,

and the sign is that of the slope. Beside it: the error of the column read as it is, ‖t − sign · c‖ / ‖t‖.
"""

from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.answer_block import column_names, with_readout
from interp.hooks import capture, hook_name
from interp.layout import BlockLayout

LEAST_SHARE = 0.05
"""R² below which a column explains nothing worth the name."""
LEAST_MARGIN = 0.02
"""R² by which the best column must lead."""
SIGMAS = 3.0
"""Standard errors that the lead, and R² itself, must be from 0."""
ROUNDING = 1e-10
"""Size of a column, relative to the largest, below which it holds rounding and no answer."""


@dataclass(frozen=True)
class Candidate:
    """One column as an answer: its place, sign and slope, R² of the regression, error when read with the sign alone."""

    column: int
    name: str
    sign: int
    slope: float
    r2: float
    error: float

    def __str__(self) -> str:
        sign = "−" if self.sign < 0 else "+"
        return f"{sign}{self.name}  (R² {self.r2:.4f}, slope {self.slope:.4g}, relative error as read {self.error:.4g})"


@dataclass(frozen=True)
class TargetReadout:
    """The columns as answers to one target column.

    Args:
        ranking: best first.
        margin, margin_error: R² of the best less that of the runner-up, and its standard error over prompts.
        together: R² of all columns together: what any linear read-out of the query row reaches on these prompts.
        unclear: why the answer is not clear, or None.
    """

    ranking: tuple[Candidate, ...]
    margin: float
    margin_error: float
    together: float
    unclear: str | None

    @property
    def best(self) -> Candidate:
        return self.ranking[0]

    @property
    def runner_up(self) -> Candidate | None:
        return self.ranking[1] if len(self.ranking) > 1 else None


@dataclass(frozen=True)
class Readout:
    """Where a model answers, one entry a target column."""

    targets: tuple[TargetReadout, ...]
    prompts: int
    layout: BlockLayout | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(target.best.column for target in self.targets)

    @property
    def sign(self) -> int:
        """The common sign of the answers; 0 where they differ."""
        signs = {target.best.sign for target in self.targets}
        return signs.pop() if len(signs) == 1 else 0

    @property
    def unclear(self) -> tuple[str, ...]:
        """Why the read-out is not clear; empty if it is."""
        reasons = [f"target {i}: {target.unclear}" for i, target in enumerate(self.targets) if target.unclear]
        if len(set(self.columns)) < len(self.columns):
            reasons.append("one column is the best of two targets")
        if self.sign == 0:
            reasons.append("the targets are answered with different signs")
        return tuple(reasons)

    @property
    def clear(self) -> bool:
        return not self.unclear

    def into(self, layout: BlockLayout | None = None) -> BlockLayout:
        """The layout with this read-out: a block of the found columns, split from the blocks that held them.

        The new block is called `answer`, and rotates with the block that was read out before, if of its width.

        Raises:
            ValueError: the read-out is not clear, or no layout was given here or to the search.
        """
        layout = self.layout if layout is None else layout
        if layout is None:
            raise ValueError("find_readout: the search had no layout to write the read-out into; pass one")
        if not self.clear:
            raise ValueError(
                f"find_readout: the read-out is not clear ({'; '.join(self.unclear)}); state it in the layout by hand"
            )
        return with_readout(layout, self.columns, self.sign)

    def to_dict(self) -> dict[str, Any]:
        targets = [{**asdict(target), "best": asdict(target.best)} for target in self.targets]
        return {"prompts": self.prompts, "clear": self.clear, "unclear": list(self.unclear), "targets": targets}

    def __str__(self) -> str:
        lines = [f"read-out, found on {self.prompts} prompts by regressing the target on every column of the query row"]
        for i, target in enumerate(self.targets):
            which = f" of target {i}" if len(self.targets) > 1 else ""
            lines.append(f"  best{which}: {target.best}")
            if target.runner_up:
                lines.append(f"  runner-up: {target.runner_up}")
                lines.append(f"  margin in R² {target.margin:.4f} ± {target.margin_error:.4f}")
            lines.append(f"  all columns together: R² {target.together:.4f}")
        return "\n".join([*lines, "  clear" if self.clear else f"  NOT CLEAR: {'; '.join(self.unclear)}"])


def find_readout(
    model: Any, tokens: Float[Tensor, "batch token _"], targets: Tensor, layout: BlockLayout | None = None
) -> Readout:
    """The column of the query row's last residual stream in which the model answers, and its sign.

    Args:
        model: hooked, see `interp.hooks.Hooked`, and without a learned read-out of its own.
        tokens: prompts, as the model takes them.
        targets: the answers [batch, query, out]: how many rows are queries, and how many columns are answered.
        layout: names the columns, which then are its block coordinates; without it they are the stream's own, 0, 1, ….

    Raises:
        ValueError: the model reads out by itself, targets that do not fit the prompts, too few prompts, values that are
            not finite.
    """
    _check(model, tokens, targets, layout)
    rows = _final_rows(model, tokens)[:, -targets.shape[1] :]
    if layout is not None:
        rows = layout.coordinates(rows)
    if not rows.isfinite().all():
        raise ValueError("find_readout: the model's activations are NaN or infinite on these prompts; scale them down")
    names = column_names(rows.shape[-1], layout)
    answers = targets.to(rows)
    found = tuple(_search(rows, answers[..., i], names) for i in range(answers.shape[-1]))
    return Readout(found, len(tokens), layout)


def _check(model: Any, tokens: Tensor, targets: Tensor, layout: BlockLayout | None) -> None:
    if getattr(model.cfg, "d_out", None) is not None:
        raise ValueError(
            "find_readout: the model has a learned read-out of its own (cfg.d_out), so no column is its answer; use "
            "model.predict"
        )
    if targets.ndim != 3 or len(targets) != len(tokens) or not 1 <= targets.shape[1] < tokens.shape[1]:
        raise ValueError(
            f"find_readout: the targets are {list(targets.shape)} and the tokens {list(tokens.shape)}; give "
            "[batch, query, out] for the last `query` rows"
        )
    if layout is not None and layout.n_query != targets.shape[1]:
        raise ValueError(
            f"find_readout: the layout has {layout.n_query} query rows and the targets {targets.shape[1]}; mend one"
        )
    if len(tokens) < 2 * tokens.shape[2]:
        raise ValueError(
            f"find_readout: {len(tokens)} prompts cannot tell {tokens.shape[2]} columns apart; give at least "
            f"{2 * tokens.shape[2]}, better 1000"
        )
    if not (targets.isfinite().all() and tokens.isfinite().all()):
        raise ValueError("find_readout: tokens or targets hold NaN or inf; leave those prompts out")
    if not targets.flatten(0, 1).any(dim=0).all():
        raise ValueError("find_readout: a target is 0 on every prompt, so any column explains it; give other prompts")


def _final_rows(model: Any, tokens: Tensor) -> Float[Tensor, "batch token d_model"]:
    """The last residual stream, in float64."""
    copy, name = deepcopy(model).double(), hook_name("resid_post", model.cfg.n_layers - 1)
    given = tokens.double() if tokens.is_floating_point() else tokens
    return capture(copy, given, [name])[name]


def _search(
    rows: Float[Tensor, "batch query D"], target: Float[Tensor, "batch query"], names: list[str]
) -> TargetReadout:
    size, total = rows.square().sum((0, 1)), target.square().sum()
    overlap = (rows * target[..., None]).sum((0, 1))
    written = size > ROUNDING**2 * size.max()
    slope = torch.where(written, overlap / torch.where(written, size, 1), 0)
    sign = torch.where(slope < 0, -1, 1)
    residual = (target[..., None] - slope * rows).square().sum(1)  # [batch, D]
    r2 = 1 - residual.sum(0) / total
    error = ((target[..., None] - sign * rows).square().sum((0, 1)) / total).sqrt()
    order = r2.argsort(descending=True, stable=True).tolist()
    ranking = tuple(Candidate(c, names[c], int(sign[c]), slope[c].item(), r2[c].item(), error[c].item()) for c in order)
    second = residual[:, order[1]] if len(order) > 1 else target.square().sum(1)
    margin, margin_error = _lead(second - residual[:, order[0]], total)
    own, own_error = _lead(target.square().sum(1) - residual[:, order[0]], total)
    return TargetReadout(
        ranking, margin, margin_error, _together(rows, target), _unclear(ranking, margin, margin_error, own, own_error)
    )


def _lead(gap: Float[Tensor, "batch"], total: Tensor) -> tuple[float, float]:
    """Σ gap / Σ t² and its standard error over prompts."""
    count = len(gap)
    return (gap.sum() / total).item(), (gap.std() * count**0.5 / total).item()


def _together(rows: Float[Tensor, "batch query D"], target: Float[Tensor, "batch query"]) -> float:
    design, wanted = rows.flatten(0, 1), target.flatten()
    fitted = design @ (torch.linalg.pinv(design, rtol=1e-10) @ wanted)
    return 1 - ((wanted - fitted).square().sum() / wanted.square().sum()).item()


def _unclear(
    ranking: tuple[Candidate, ...], margin: float, margin_error: float, own: float, own_error: float
) -> str | None:
    best = ranking[0]
    if own < max(LEAST_SHARE, SIGMAS * own_error):
        return f"no column explains the target: the best, {best.name}, has R² {best.r2:.4f} ± {own_error:.4f}"
    if len(ranking) > 1 and margin < max(LEAST_MARGIN, SIGMAS * margin_error):
        return f"{best.name} and {ranking[1].name} are a tie: their R² differ by {margin:.4f} ± {margin_error:.4f}"
    return None
