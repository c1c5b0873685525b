"""Their online reading: each example updates the state, as in recursive least squares."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import median
from interp.hooks import capture, hook_name, run_with_hooks
from interp.kernels import AttentionKernel
from interp.layout import BlockLayout, Visibility
from interp.solvers import LeastSquares, RecursiveLeastSquares, iterate
from interp.stats import relative_errors
from interp.unrolling import closed_form, unroll
from models import zoo
from models.config import TransformerConfig
from models.constructions.eagle import T3, THEORY, contraction, eagle_head
from models.constructions.weights import model_from, place
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer

LAYERS = 4
TRAINED = "eagle-d10"
PENALTIES = (1e-8, 1e-4, 1e-2, 1e-1, 1.0)
Schedule = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Sizes:
    """Rows, columns and prompts."""

    n: int = 20
    d: int = 10
    prompts: int = 32


FULL = Sizes(prompts=512)
KAPPA = 10.0  # what the trained schedule is for


def measure(sizes: Sizes, settings: Settings) -> Findings:
    family = LogUniformSpectrum(n=sizes.n, d=sizes.d, kappa=KAPPA)
    drawn = family.sample(sizes.prompts, seed=settings.seed)
    A, C = drawn.A, drawn.C
    moments, distances = _moments(A, C, settings)
    online, table, details = _weights(A, C, sizes, settings)
    return Findings(
        {"prefix-moments": moments, "recursive-least-squares": online},
        f"largest distance of the state at token k from the moments of the examples, by layer: {distances}\n\n{table}",
        {"online": {"sizes": asdict(sizes), **details}},
    )


def causal_eagle(schedule: Schedule, d: int, rule: str = "causal") -> HookedTransformer:
    """EAGLE's heads in which context rows see what `rule` says and d query rows the whole context; W_K = W_V = I, so
    that the head reads and writes z itself: hook_z is q S."""
    layout = BlockLayout.standard(x=d, y=1, n_query=d, sign=-1, visibility=Visibility(rule, "context"))
    heads = [eagle_head(layout, eta, gamma) for eta, gamma in zip(*schedule, strict=True)]
    Q, V = (torch.stack([head[index][None] for head in heads]) for index in (0, 1))
    eye = place(layout, {("x", "x"): 1.0, ("y", "y"): 1.0}).expand_as(Q)
    cfg = TransformerConfig(len(heads), 1, layout.d_model, layout.d_model, kernel=AttentionKernel())
    return model_from(cfg, layout, {"W_Q": Q, "W_K": eye, "W_V": eye, "W_O": V})


def tokens_of(A: Float[Tensor, "prompt n d"], C: Float[Tensor, "prompt n 1"]) -> Float[Tensor, "prompt token d_model"]:
    """The examples, then the d unit vectors as queries."""
    d = A.shape[2]
    queries = torch.eye(d, d + 1).to(A).expand(len(A), -1, -1)
    return torch.cat([torch.cat([A, C], 2), queries], 1)


def states_seen(model: HookedTransformer, tokens: Tensor, layer: int) -> Float[Tensor, "prompt token D D"]:
    """S of every token of a layer, read from outside: with a unit vector in place of all queries, hook_z is a row."""
    rows = []
    for index in range(tokens.shape[-1]):
        found: list[Tensor] = []
        probe = torch.zeros(tokens.shape[-1]).to(tokens)
        probe[index] = 1
        hooks = [
            (hook_name("q", layer), lambda q, hook, probe=probe: probe.expand_as(q)),
            (hook_name("z", layer), lambda z, hook, found=found: found.append(z.detach().clone())),
        ]
        with torch.no_grad():
            run_with_hooks(model, tokens, hooks)
        rows.append(found[0][:, :, 0])
    return torch.stack(rows, 2)


def prefix_moments(A: Float[Tensor, "prompt n d"], C: Float[Tensor, "prompt n 1"]) -> Float[Tensor, "prompt n D D"]:
    """Example by example: S ← S + (x, y)(x, y)ᵀ."""
    S, seen = torch.zeros(len(A), A.shape[2] + 1, A.shape[2] + 1).to(A), []
    for row in torch.cat([A, C], 2).unbind(1):
        S = S + row[:, :, None] * row[:, None]
        seen.append(S)
    return torch.stack(seen, 1)


def _moments(A: Tensor, C: Tensor, settings: Settings) -> tuple[Measurement, str]:
    """S_xx and S_xy at the tokens of each layer against the prefix moments."""
    d, n = A.shape[2], A.shape[1]
    model = causal_eagle(trained_schedule(), d)
    expected = prefix_moments(A, C)[..., :d, :]
    largest = []
    for layer in range(LAYERS):
        seen = states_seen(model, tokens_of(A, C), layer)[:, :n, :d]
        gap = (seen - expected).flatten(2).norm(dim=2) / expected.flatten(2).norm(dim=2)
        largest.append(float(gap.max()))
    note = (
        f"A causal EAGLE of {LAYERS} layers with the steps of {TRAINED}, {len(A)} prompts of {n} examples, seed "
        f"{settings.seed}; S read through hook_z with unit vectors as queries, the example at token k is in it. In "
        f"layer 0 the distance is {largest[0]:.1g}: there S is the sum over examples, by what attention is. Deeper "
        f"layers hold the moments of transformed rows ({', '.join(f'{value:.2g}' for value in largest[1:])})."
    )
    return Measurement.exact(max(largest), note), ", ".join(f"{value:.1e}" for value in largest)


def trained_schedule() -> Schedule:
    """η_l, γ_l of the model of the zoo."""
    form = closed_form(unroll(zoo.load(TRAINED)))
    if form is None:
        raise ValueError(f"{TRAINED} has no closed form; take a model that has one")
    return list(form.eta), list(form.gamma)


def schedules() -> dict[str, Schedule]:
    """The trained one, and named constants in units of the norms that prompts of ‖A‖ = 1 have."""
    named = {"theory (1/3, 1)": THEORY, "T₃ (4/3, 4/3)": T3}
    return {f"trained ({TRAINED})": trained_schedule()} | {name: _scheduled(*pair) for name, pair in named.items()}


def _scheduled(eta: float, gamma: float) -> Schedule:
    squares = [contraction(eta) ** (2 * layer) for layer in range(LAYERS)]
    return [eta / square for square in squares], [gamma / square for square in squares]


def weights_at_last_token(model: HookedTransformer, A: Tensor, C: Tensor) -> Float[Tensor, "prompt d 1"]:
    """The answers to the unit queries."""
    last = hook_name("resid_post", model.cfg.n_layers - 1)
    return model.layout.predict(capture(model, tokens_of(A, C), [last])[last])


def _weights(A: Tensor, C: Tensor, sizes: Sizes, settings: Settings) -> tuple[Measurement, str, dict[str, Any]]:
    """w of causal and bidirectional models against recursive least squares, at the penalty that is nearest."""
    solutions = {
        penalty: iterate(RecursiveLeastSquares(penalty), LeastSquares(A, C), sizes.n)[-1] for penalty in PENALTIES
    }
    errors = {
        (name, rule): {p: relative_errors(w, solution) for p, solution in solutions.items()}
        for name, schedule in schedules().items()
        for rule in ("causal", "context")
        for w in [weights_at_last_token(causal_eagle(schedule, sizes.d, rule), A, C)]
    }
    nearest = {key: min(of.items(), key=lambda entry: float(entry[1].median())) for key, of in errors.items()}
    best = min((key for key in nearest if key[1] == "causal"), key=lambda key: float(nearest[key][1].median()))
    both = nearest[best[0], "context"][1]
    note = (
        f"{len(A)} prompts of {sizes.n} examples, d = {sizes.d}, κ = {KAPPA:g}, seed {settings.seed}; the nearest of "
        f"{len(errors) // 2} schedules, {best[0]}, and of penalties, {nearest[best][0]:g}. Context rows that see only "
        "what came before condition themselves with other moments than the last token's, so S_l is no polynomial of S. "
        f"The same schedule with bidirectional context is at {float(both.median()):.2g}. The state follows recursive "
        "least squares in what it holds (S), not in what four layers make of it."
    )
    lines = [
        "median distance of w from recursive least squares (penalty)",
        f"{'schedule':<24}{'causal':>18}{'context':>18}",
    ]
    for name in schedules():
        cells = [f"{float(e.median()):.2g} ({p:g})" for p, e in (nearest[name, rule] for rule in ("causal", "context"))]
        lines.append(f"{name:<24}" + "".join(f"{cell:>18}" for cell in cells))
    details = {f"{name}, {rule}": {f"{p:g}": e.tolist() for p, e in of.items()} for (name, rule), of in errors.items()}
    return median(nearest[best][1], note, settings.seed), "\n".join(lines), details
