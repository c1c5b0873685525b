"""How deep and how wide a Richardson network must be for an error: two laws, and the network they size.

With ω = 1 and P = D + λI, on prompts of a `Domain`, at every query and against exact kernel ridge regression:

    depth   |f_k − f| ≤ f_max ρ^k,    ρ = d_max/(d_max + λ),    f_max = y_max √(n/λ)
    width   |network − f_k| ≤ C/m²,   C = S W + f_max log²(W/λ)/4 + √(n/λ) W U (y_max/λ + alpha_max)

with W = d_max + λ, U = λ/(1 + λ), S = f_max alpha_max/(f_max + λ alpha_max), alpha_max = (y_max + f_max)/λ.

Depth: I − P⁻¹(K + λI) is self-adjoint with norm at most ρ in the scalar product of K + λI, in which α* has a norm of at
most ‖y‖/√λ; and |f(x)| is at most its norm in the space of the kernel. Width: the read-out's product s·w is off by
S W/m², w itself by log²(W/λ)/4m² of the answer, and errors δ of p y/λ and p α that do not change from step to step move
the answer by k_q B_k P δ, at most √(n/λ) W |δ|. (Those of p α do change while α does, which is not counted; measured
errors are about a tenth of the law.) So steps = O(log(1/ε)) and m = O(1/√ε), both independent of n if λ grows with n.
"""

import math

from models.constructions.construction import Construction, PromptShape, check_positive
from models.constructions.richardson import richardson
from models.constructions.richardson_domain import Domain


def depth_law(domain: Domain, steps: float) -> float:
    """The largest error of exact Richardson iteration after so many steps."""
    return domain.f_max * (domain.d_max / (domain.d_max + domain.lam)) ** steps


def width_law(domain: Domain, m: float) -> float:
    """The largest error of a network of m segments against exact Richardson iteration after as many steps."""
    lam, f, alpha, W = domain.lam, domain.f_max, domain.alpha_max, domain.d_max + domain.lam
    answer = f * alpha / (f + lam * alpha) * W + f * math.log(W / lam) ** 2 / 4
    steps = math.sqrt(domain.n / lam) * W * lam / (1 + lam) * (domain.y_max / lam + alpha)
    return (answer + steps) / m**2


def steps_for(domain: Domain, eps: float) -> int:
    """The fewest steps at which the depth law is at most ε."""
    needed = math.log(domain.f_max / eps) / math.log1p(domain.lam / domain.d_max)
    return max(1, math.ceil(needed))


def segments_for(domain: Domain, eps: float) -> int:
    """The smallest even m at which the width law is at most ε."""
    return 2 * max(1, math.ceil(math.sqrt(width_law(domain, 1.0) / eps) / 2))


def richardson_for_error(
    eps: float,
    n: int,
    lam: float,
    bandwidth: float,
    y_max: float,
    *,
    d: int = 1,
    n_query: int = 1,
    d_max: float | None = None,
    tracked: bool = False,
) -> Construction:
    """The network whose answers are within ε of kernel ridge regression, half of it for the depth, half for the width.

    Args:
        eps: the largest error of an answer, in the units of the labels.
        n: the largest number of context points.      y_max: the largest |label|; `tokens` refuses more of either.
        lam, bandwidth: λ and h.                      d, n_query: input columns and queries of a prompt.
        d_max: the largest row sum of K if it is known to be below n; `tokens` refuses more.
        tracked: as in `richardson`.

    Rounding in float32 added at most 1.2e-5 where y_max = 4 and n/λ = 10; an ε of that size is out of its reach.

    Raises:
        ValueError: a number that is not positive; prompts beyond n, y_max or d_max, from `tokens`.
    """
    check_positive("richardson_for_error", eps=eps)
    domain = Domain(n, lam, bandwidth, y_max, float(n) if d_max is None else d_max)
    steps, m = steps_for(domain, eps / 2), segments_for(domain, eps / 2)
    shape = PromptShape(d, n_query=n_query, n=n)
    return richardson(shape, lam, bandwidth, steps, m, y_max, d_max=d_max, tracked=tracked)
