"""Later layers of a trained softmax model add little, as late steps of a converging iteration do: fewer answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.costs import count_flops
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from analyses.claims.process_case import task_of
from analyses.compare_model import widened
from analyses.subject import FRESH
from interp.comparison import OWN, TO_KRR, Problems
from interp.comparison.readouts import own_read, predictions
from interp.gaussian_process import posterior
from models import zoo
from models.transformer import HookedTransformer

MODEL, WITHIN = "gp-softmax", 0.01
READOUTS = {"layers": OWN, "probe-layers": TO_KRR}


@dataclass(frozen=True)
class Sizes:
    """Prompts to fit probes on and to measure on, 16 queries each."""

    train: int = 512
    test: int = 512


FULL = Sizes(4096, 8192)


def measure(settings: Settings, sizes: Sizes | None = None) -> Findings:
    sizes = sizes or (FULL if settings.full else Sizes())
    models = zoo.seeds(MODEL)
    errors = {seed: by_depth(model, sizes, settings) for seed, model in models.items()}
    note = f"{sizes.test} prompts of 16 queries, seed {settings.seed}; ratios of the squared error to the final one in "
    found = {name: _fewest(errors, readout, note) for name, readout in READOUTS.items()}
    fewest = int(min(by.value for by in found.values()))
    measurements = {**found, "flops": saved(next(iter(models.values())), fewest)}
    means = {
        f"{readout}, seed {seed}": by[readout].mean(1).tolist()
        for readout in READOUTS.values()
        for seed, by in errors.items()
    }
    return Findings(measurements, _table(means), means, lambda path: _draw(means, path))


@torch.no_grad()
def by_depth(model: HookedTransformer, sizes: Sizes, settings: Settings) -> dict[str, Float[Tensor, "layer prompt"]]:
    """Squared error after each layer, by read-out; of probes the last layer is a probe, too."""
    model, task = widened(model.double(), task_of(MODEL))
    model = model.to(settings.device)
    train, test = (
        Problems.of(task.sample(count, seed=FRESH + 2 * settings.seed + part, device=settings.device))
        for part, count in enumerate((sizes.train, sizes.test))
    )
    ridge = tuple(posterior(task.kernel, task.lam, part.x, part.y, part.queries).mean for part in (train, test))
    found = predictions(model, train, test, (ridge[0], ridge[1]), own_read(model, task.n_query))
    return {name: (layers - test.target).square().mean((2, 3)).cpu() for name, layers in found.items()}


def _fewest(errors: Mapping[int, Mapping[str, Tensor]], readout: str, note: str) -> Measurement:
    """The fewest layers within 1 % of the final error, of the seed that needs fewer; prompts resampled."""
    found = []
    for seed, by in errors.items():
        squared = by[readout]

        def layers(at: Tensor, squared: Tensor = squared) -> Tensor:
            means = squared[:, at].mean(-1)
            near = means <= (1 + WITHIN) * means[-1]
            return (near.int().cumsum(0) == 0).sum(0).double() + 1

        means = squared.mean(1)
        ratios = ", ".join(f"{ratio:.3g}" for ratio in (means / means[-1]).tolist())
        found.append(bootstrap(layers, torch.arange(squared.shape[1]), f"{note}seed {seed}: {ratios}"))
    return min(found, key=lambda by: by.value)


def saved(model: HookedTransformer, layers: int) -> Measurement:
    """The share of operations that are left out with the layers after the first `layers`."""
    tokens = task_of(MODEL).sample(1, seed=FRESH).tokens.to(model.dtype)
    whole = count_flops(lambda: model(tokens))
    block = count_flops(lambda: model.blocks[0](torch.zeros(1, tokens.shape[1], model.cfg.d_model, dtype=model.dtype)))
    left_out = model.cfg.n_layers - layers
    return Measurement.exact(left_out * block / whole, f"{left_out} of {model.cfg.n_layers} layers left out")


def _table(means: Mapping[str, list[float]]) -> str:
    lines = ["squared error after each layer", f"{'':<24}" + "".join(f"{depth + 1:>9}" for depth in range(6))]
    return "\n".join(lines + [f"{name:<24}" + "".join(f"{e:>9.4f}" for e in errors) for name, errors in means.items()])


def _draw(means: Mapping[str, list[float]], path: Path) -> None:
    curves = {name: (range(1, len(errors) + 1), errors) for name, errors in means.items()}
    draw_curves(curves, path, title=f"Early exit from {MODEL}", x="layers", y="squared error")
