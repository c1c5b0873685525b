"""One trained linear-attention layer is one step of gradient descent: weights, predictions and sensitivities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from interp.unrolling.circuits import extract_circuits
from models import zoo
from models.prompts import Prompts

MODEL = "lsa-1layer"
PROMPTS, FULL, FIT = 4096, 16384, 16384
MIXTURES = tuple(step / 8 for step in range(9))
RATIOS = ("loss", "interpolation")
NOTES = {
    "loss": "losses 2 × half-MSE: layer {model:.4f}, step {step:.4f}",
    "predictions": "one query a prompt",
    "cosine": "w of the layer and γ AᵀC of the step, exact for all queries, as both are linear in them",
    "sensitivity": "w of the layer and γ AᵀC of the step, exact for all queries, as both are linear in them",
    "weights": "b Q S V on the rows and columns that act, symmetrised as S is; no scatter",
    "interpolation": "Q and V halfway, the construction's Q as large as the layer's mean diagonal",
}


@dataclass(frozen=True)
class Head:
    """What acts in the layer: prediction = b Q S V for a query b, with S = Σ z zᵀ over the context rows.

    Args:
        Q: from the query's x to the columns of S.        V: from the columns of S to the answer, sign included.
    """

    Q: Float[Tensor, "x D"]
    V: Float[Tensor, "D y"]

    @classmethod
    def of(cls, model: Any) -> "Head":
        """The head of a one-layer, one-head model; a query's y is masked and has no effect on it."""
        (circuit,), at = extract_circuits(model, model.layout), model.layout.slices
        (group,) = (group for group in circuit.groups if "query" in group.roles)
        assert group.own is not None
        (Q,), (V,) = group.own
        return cls(Q[at["x"]], model.layout.sign * V[:, at["y"]])

    @classmethod
    def gradient_step(cls, gamma: float, like: "Head") -> "Head":
        """Proposition 1 of von Oswald et al.: Q = a (I 0), V = γ/a (0 I)ᵀ, a the mean diagonal of the other's Q."""
        (d, width), out = like.Q.shape, like.V.shape[1]
        a = like.Q[:, :d].diagonal().mean()
        Q = a * torch.eye(d, width).to(like.Q)
        V = torch.cat([torch.zeros(width - out, out), torch.eye(out)]).to(like.V)
        return cls(Q, gamma / a * V)

    def mixed(self, other: "Head", share: float) -> "Head":
        """Q and V with a share of the other's."""
        return Head((1 - share) * self.Q + share * other.Q, (1 - share) * self.V + share * other.V)

    def tensor(self) -> Float[Tensor, "x D D y"]:
        """T[i, b, c, j] = Q[i, b] V[c, j], symmetrised in (b, c): all that the weights do."""
        full = torch.einsum("ib,cj->ibcj", self.Q, self.V)
        return (full + full.transpose(1, 2)) / 2

    def weights(self, sample: Prompts) -> Float[Tensor, "prompt x y"]:
        """∂prediction/∂query = Q S V."""
        rows = sample.tokens[:, : -sample.n_query]
        return self.Q.to(rows) @ (rows.mT @ rows) @ self.V.to(rows)


@dataclass(frozen=True)
class Trained:
    """A seed: its weights w and those of the step on the prompts, and the squared error of mixtures of both."""

    seed: int
    head: Head
    gamma: float
    sample: Prompts

    @property
    def step(self) -> Head:
        return Head.gradient_step(self.gamma, self.head)

    def squared_errors(self, share: float) -> Float[Tensor, " prompt"]:
        """Of the layer (share 0), the construction (share 1), and weights between them."""
        w = self.head.mixed(self.step, share).weights(self.sample)
        return (self.sample.B @ w - self.sample.target).square().flatten(1).sum(1)

    def loss(self, share: float) -> float:
        return self.squared_errors(share).mean().item()

    def measure(self, seed: int) -> dict[str, Measurement]:
        w, step = self.head.weights(self.sample), self.step.weights(self.sample)
        gap, of_step = self.sample.B @ (w - step), self.sample.B @ step
        T, ours = self.head.tensor(), self.step.tensor()
        note = f"seed {self.seed}, {len(w)} prompts, step size {self.gamma:.4g} on {FIT} others; "
        notes = {name: note + text for name, text in NOTES.items()}
        notes["loss"] = notes["loss"].format(model=self.loss(0), step=self.loss(1))
        return {
            "loss": _ratio(self.squared_errors(0), self.squared_errors(1), notes["loss"], seed),
            "predictions": _rms(gap, of_step, notes["predictions"], seed),
            "cosine": bootstrap(
                lambda x: x.mean(-1),
                torch.cosine_similarity(w.flatten(1), step.flatten(1)).cpu(),
                notes["cosine"],
                seed,
            ),
            "sensitivity": _rms(w - step, step, notes["sensitivity"], seed),
            "weights": Measurement.exact(((T * ours).sum() / (T.norm() * ours.norm())).item(), notes["weights"]),
            "interpolation": _ratio(self.squared_errors(0.5), self.squared_errors(0), notes["interpolation"], seed),
        }


def measure(settings: Settings, prompts: int | None = None) -> Findings:
    count = prompts or (FULL if settings.full else PROMPTS)
    gamma = step_size(zoo.prompts(MODEL, FIT, seed=settings.seed + 1, device=settings.device))
    sample = zoo.prompts(MODEL, count, seed=settings.seed, device=settings.device)
    trained = [Trained(number, Head.of(model), gamma, sample) for number, model in zoo.seeds(MODEL).items()]
    found = [entry.measure(settings.seed) for entry in trained]
    losses = {entry.seed: [entry.loss(share) for share in MIXTURES] for entry in trained}
    details = {
        "step_size": gamma,
        "seeds": {
            entry.seed: {name: m.value for name, m in by.items()} for entry, by in zip(trained, found, strict=True)
        },
        "mixtures": {"share": list(MIXTURES), "squared_error": losses},
    }
    return Findings({name: worst(name, found) for name in NOTES}, _table(details), details, partial(_draw, losses))


def step_size(sample: Prompts) -> float:
    """γ with the least squared error of B γ AᵀC: the minimum of a parabola."""
    step = sample.B @ sample.A.mT @ sample.C
    return ((step * sample.target).sum() / step.square().sum()).item()


def worst(name: str, found: Sequence[Mapping[str, Measurement]]) -> Measurement:
    """The seed that is furthest from a gradient step."""
    badness: Callable[[float], float] = (
        (lambda value: abs(value - 1)) if name in (*RATIOS, "cosine", "weights") else (lambda value: value)
    )
    return max((by[name] for by in found), key=lambda m: badness(m.value))


def _ratio(over: Tensor, under: Tensor, note: str, seed: int) -> Measurement:
    """mean / mean, prompts resampled together."""
    over, under = over.cpu(), under.cpu()
    return bootstrap(lambda at: over[at].mean(-1) / under[at].mean(-1), torch.arange(len(over)), note, seed)


def _rms(gap: Tensor, size: Tensor, note: str, seed: int) -> Measurement:
    """‖gap‖ / ‖size‖ over all prompts."""
    squares = [part.square().flatten(1).sum(1).cpu() for part in (gap, size)]
    return bootstrap(
        lambda at: (squares[0][at].mean(-1) / squares[1][at].mean(-1)).sqrt(), torch.arange(len(gap)), note, seed
    )


def _table(details: Mapping[str, Any]) -> str:
    lines = [f"step size by line search {details['step_size']:.4g}", "seed" + "".join(f"{name:>15}" for name in NOTES)]
    lines += [f"{seed:>4}" + "".join(f"{by[name]:>15.5f}" for name in NOTES) for seed, by in details["seeds"].items()]
    return "\n".join(lines)


def _draw(losses: Mapping[int, Sequence[float]], path: Path) -> None:
    draw_curves(
        {f"seed {seed}": (MIXTURES, [value / 2 for value in values]) for seed, values in losses.items()},
        path,
        title="Between a trained layer and one gradient step",
        x="share of the construction in Q and V",
        y="half the squared error",
        log_y=False,
    )
