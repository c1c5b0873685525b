"""Softmax transformers that solve kernel ridge regression by preconditioned Richardson iteration."""

from interp.layout import BlockLayout, Visibility
from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.richardson_blocks import Design, network
from models.constructions.richardson_domain import Domain, Embedding
from models.constructions.richardson_units import together

FAMILY = "preconditioned Richardson"
COLUMNS = ("y", "norm", "constant", "bos", "p", "c", "w", "s", "alpha", "out")


def richardson(
    shape: PromptShape,
    lam: float,
    bandwidth: float,
    steps: int,
    m: int,
    y_max: float,
    *,
    omega: float = 1.0,
    tracked: bool = False,
    shift: float | None = None,
    causal: bool = False,
    d_max: float | None = None,
    alpha_max: float | None = None,
) -> Construction:
    """α ← α + ω P⁻¹(y − (K + λI) α) from α = 0, P = D + λI, D = diag(K1), and the answer Σ_j k(x_q, x_j) α_j.

    k(x, x') = exp(−‖x − x'‖²/2h²). One head of softmax attention and one ReLU MLP a block, no norms. A first token BOS
    of value 0 and score log λ turns softmax into P⁻¹K, and its weight is p = λ/(D + λ). ‖x‖² is a column of the tokens
    (`norm`), from which scores take −‖x_i‖²/2h² and −‖x_k‖²/2h². Blocks (MATH §6), `steps` + 1 of them:

        block 0        p from BOS; c = p y/λ, w = λ/p = D + λ, and the first step α = ωc
        blocks 1 …     s = P⁻¹Kα by attention; α += ω(c − s − p α) by the MLP
        the last       s = P⁻¹Kα; out = s w in every row, the answer in those of the queries

    The attention is exact; products are interpolated with m segments a square (`richardson_units`), which is off by
    at most (width of the ranges)/m². `Preconditioned(GradientDescent(ω), row_sums)` of interp.solvers is the limit.
    BOS is the first context row of the layout; queries see the context only.

    Args:
        shape: d, n_query and n, the largest number of context points; one column of labels.
        lam, bandwidth: λ and h.          steps: of the iteration.
        m: segments a square, even.       y_max: the largest |label|.
        omega: 0 < ω < 2; ω = 1 converges for all data and all λ > 0.
        tracked: every block also writes out = s w, so that the model's read-out of the residual stream after layer l
            (0-based) is the answer after l steps; layer 0 holds 0.
        shift: P = D + shift·I instead of D + λI. A small one is P = D, which diverges at ω = 1 where a point is
            isolated and λ > 1 (a shift of 0 would leave no weight on BOS to read p from).
        causal: context rows see themselves and earlier ones, so that (tril(K) + λI) α = y is solved instead.
        d_max: the largest row sum of K, if it is known to be below n.
        alpha_max: the largest |α| that products are exact for; by default a bound that holds for the defaults above.

    Raises:
        ValueError: a setting that is not positive, ω outside (0, 2), an odd m, a shape without n or with several
            columns of labels; and from `tokens`, prompts with more points or larger labels than it is sized for.

    Source: MATH §6, after arXiv 2605.08475, which takes about two blocks a step.
    """
    _check(shape, steps, m, omega)
    assert shape.n is not None
    domain = Domain(shape.n, lam, bandwidth, y_max, float(shape.n) if d_max is None else d_max)
    options = {"shift": shift, "d_max": d_max, "alpha_max": alpha_max}
    given = {name: value for name, value in options.items() if value is not None}
    check_positive("richardson", **given)
    layout = BlockLayout.standard(
        x=shape.d,
        **dict.fromkeys(COLUMNS, 1),
        n_query=shape.n_query,
        readout="out",
        visibility=Visibility("causal" if causal else "context", "context"),
    )
    design = Design(layout, domain, omega, shift or lam, m, alpha_max or domain.alpha_max * (4 if omega > 1 else 1))
    settings = {"lam": lam, "bandwidth": bandwidth, "omega": omega, "steps": steps, "m": m, "y_max": y_max}
    settings |= {"n": shape.n, "tracked": tracked, "causal": causal, **given}
    first, last = ("bos", "p", design.read_in()), ("alpha", "s", together([*design.answer(), design.clear()]))
    shown = design.answer() if tracked else []
    middle = ("alpha", "s", together([*design.step(), *shown, design.clear()]))
    model = network(design, [first, *[middle] * (steps - 1), last])
    return Construction(FAMILY, model, settings, Embedding(domain))


def _check(shape: PromptShape, steps: int, m: int, omega: float) -> None:
    if shape.n is None or shape.d_out != 1 or shape.scale != "none":
        raise ValueError("richardson: state n, the largest number of context points, with one label and no scale")
    if not isinstance(steps, int) or steps < 1 or not isinstance(m, int) or m < 2 or m % 2:
        raise ValueError(f"richardson: steps must be a whole number of at least 1 and m an even one, got {steps}, {m}")
    if not 0 < omega < 2:
        raise ValueError(f"richardson: omega={omega} must lie between 0 and 2, where the iteration converges")
