"""Three regimes, full visibility, rank-limited heads and distributed rows, end in the same update rule.

The criterion for "the same rule": in every live layer the EAGLE form (its two words; in a rank-limited head with a
projection P in the place of the identity) explains at least .99 of the layer's function, and the first layer's step is
the same in units of 1/‖A‖².
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analyses.claims.claim import Findings, Measurement, Settings
from analyses.claims.eagle_form import HeadForm, LayerFidelity, block_form, eagle_form, layer_fidelity
from analyses.claims.plots import draw_curves
from interp import unroll
from models import zoo

PROMPTS = 512
ENOUGH = 0.99
REGIMES = {
    "eagle": "full",
    "eagle-d10": "full",
    "eagle-lowrank": "rank-limited",
    "eagle-lowrank-2head": "rank-limited",
    "eagle-distributed": "distributed",
    "eagle-distributed-heads": "distributed",
}
PUBLISHED = {
    "fidelity-full": ("eagle", (2.36e-4, 5.27e-4, 3.70e-4, 2.16e-4)),
    "fidelity-distributed": ("eagle-distributed-heads", (0.62e-4, 1.40e-4, 1.28e-4, 1.32e-4)),
    "fidelity-lowrank": ("eagle-lowrank", (0.01e-4, 0.02e-4, 0.13e-4, 0.14e-4)),
}
"""Layer fidelity by layer, squared error over the number of entries of Z (MATH §8)."""


@dataclass(frozen=True)
class Entry:
    """One trained seed.

    Args:
        heads: the numbers of its EAGLE form, by layer and group of heads.
        layers: what the form keeps of each layer.
        blocks: what is kept if Q_xx and V_xx stay the matrices that they are.
        steps_context: by group of the first layer, does it act on context rows.
    """

    model: str
    seed: int
    heads: Sequence[Sequence[HeadForm]]
    layers: Sequence[LayerFidelity]
    blocks: Sequence[LayerFidelity]
    steps_context: Sequence[bool]

    @property
    def least(self) -> float:
        return min(layer.explained for layer in self.layers)

    @property
    def first_step(self) -> float:
        """|η_0|‖A‖² of the context rows, the mean over their groups of heads."""
        steps = [-head.eta for head, chosen in zip(self.heads[0], self.steps_context, strict=True) if chosen]
        return sum(steps) / len(steps) * self.layers[0].norm ** 2

    def to_dict(self) -> dict[str, Any]:
        heads = [[asdict(head) for head in layer] for layer in self.heads]
        kept = {name: [asdict(entry) for entry in getattr(self, name)] for name in ("layers", "blocks")}
        return {"model": self.model, "seed": self.seed, "heads": heads, **kept}


def measure(settings: Settings, models: Sequence[str] = tuple(REGIMES), prompts: int = PROMPTS) -> Findings:
    entries = [entry for name in models for entry in _entries(name, prompts, settings.seed)]
    measurements = {"words": _words(entries), "coefficients": _coefficients(entries)}
    measurements |= {key: _fidelity(entries, *published) for key, published in PUBLISHED.items()}
    details = {"entries": [entry.to_dict() for entry in entries]}
    return Findings(measurements, _table(entries), details, partial(_draw, entries))


def _entries(name: str, count: int, seed: int) -> list[Entry]:
    prompts = zoo.prompts(name, count, seed=seed)
    found = []
    for number, model in zoo.seeds(name).items():
        rule = unroll(model)
        form, heads = eagle_form(rule)
        kept, blocks = (layer_fidelity(rule, other, prompts) for other in (form, block_form(rule)))
        context = ["context" in item.group.roles for item in rule.layers[0].groups]
        found.append(Entry(name, number, heads, kept, blocks, context))
    return found


def _words(entries: Sequence[Entry]) -> Measurement:
    by_model = {name: [e.least for e in entries if e.model == name] for name in dict.fromkeys(e.model for e in entries)}
    short = [f"{name} {min(least):.3g}" for name, least in by_model.items() if min(least) < ENOUGH]
    share = sum(entry.least >= ENOUGH for entry in entries) / len(entries)
    return Measurement.exact(
        share,
        f"{len(entries)} trained models; least function explained of a live layer below {ENOUGH}: "
        f"{', '.join(short) or 'in none'}; of every group of heads the largest canonical one counts, "
        "and rank-limited heads have a projection P in the place of I",
    )


def _coefficients(entries: Sequence[Entry]) -> Measurement:
    """Over the shipped seed of each model, the best of three: others can sit in another basin (see the table)."""
    shipped = [entry for entry in entries if entry.seed == zoo.metadata(entry.model)["seed"]]
    steps = {entry.model: entry.first_step for entry in shipped if entry.least >= ENOUGH}
    if not steps or min(steps.values()) <= 0:
        return Measurement.exact(float("inf"), "no trained model runs the two words with a contracting first layer")
    values = ", ".join(f"{name} {step:.3g}" for name, step in steps.items())
    return Measurement.exact(
        max(steps.values()) / min(steps.values()),
        f"the best seed of each, ‖A‖ the largest on {PROMPTS} prompts (of a machine's rows if distributed): "
        f"{values}; T₃ is 4/3, published 1, theory 1/3",
    )


def _fidelity(entries: Sequence[Entry], model: str, published: Sequence[float]) -> Measurement:
    """The worst layer over the published value; of rank-limited heads with their x blocks as they are, see the note."""
    mine = [entry for entry in entries if entry.model == model]
    limited = REGIMES[model] == "rank-limited"
    strict, free = ([_worst(getattr(e, kept), published) for e in mine] for kept in ("layers", "blocks"))
    ratios = sorted(free if limited else strict)
    central = sorted(_worst(e.blocks if limited else e.layers, published, "central_fidelity") for e in mine)
    note = (
        f"{model}: the median over {PROMPTS} prompts, of what reaches the output; median of its seeds, interval their "
        f"range. The mean over the central 99 % of prompts, which few decide, gives {central[len(central) // 2]:.3g}"
    )
    if limited:
        note += (
            "; Q_xx and V_xx stay the matrices that they are, the only reading near the published numbers: with P and "
            f"b₁P + b₂(I − P) in their place the ratio is {sorted(strict)[len(strict) // 2]:.3g}, as V_xx, of rank 5, "
            "reads in P and writes elsewhere"
        )
    return Measurement(ratios[len(ratios) // 2], (ratios[0], ratios[-1]), note)


def _worst(layers: Sequence[LayerFidelity], published: Sequence[float], measure: str = "fidelity") -> float:
    return max(getattr(layer, measure) / theirs for layer, theirs in zip(layers, published, strict=True))


def _table(entries: Sequence[Entry]) -> str:
    lines = [
        "EAGLE form by regime and seed: function explained, fidelity, and for every group of heads |η|‖A_l‖², γ‖A_l‖² "
        "(‖A_l‖ the median)",
    ]
    for entry in entries:
        lines.append(f"{entry.model} seed {entry.seed} ({REGIMES[entry.model]})")
        for index, (heads, layer) in enumerate(zip(entry.heads, entry.layers, strict=True)):
            square = layer.median_norm**2
            steps = "; ".join(
                f"η {-h.eta * square:.3g}, γ {h.gamma * square:.3g}"
                + (f", outside P {-h.outside * square:.3g}, rank {h.rank}" if h.outside else "")
                for h in heads
            )
            blocks = f"; x blocks as they are {entry.blocks[index].fidelity:.2e}" if heads[0].outside else ""
            lines.append(f"  layer {index}  {layer.explained:.5f}  {layer.fidelity:.2e}  {steps}{blocks}")
    lines.append("published fidelity by layer")
    lines += [f"  {model}: {', '.join(f'{v:.2e}' for v in values)}" for model, values in PUBLISHED.values()]
    return "\n".join(lines)


def _draw(entries: Sequence[Entry], path: Path) -> None:
    curves = {
        f"{entry.model}, seed {entry.seed}": (
            list(range(len(entry.layers))),
            [max(1 - layer.explained, 1e-8) for layer in entry.layers],
        )
        for entry in entries
    }
    draw_curves(
        curves,
        path,
        title="What EAGLE's form leaves unexplained of each layer",
        x="layer",
        y="1 − function explained",
        marks={"criterion": 1 - ENOUGH},
    )
