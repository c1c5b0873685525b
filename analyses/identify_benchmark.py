"""How often is a known algorithm named, and a decoy not? Drawn by a seed, disguised, identified in a fresh process.

The process that answers sees bare matrices, a layout and prompts, in files whose names say nothing.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer

from analyses.terminal import note, run_command, to_json
from models.constructions import CONSTRUCTIONS, Construction, bare
from models.constructions.decoys import DECOYS
from models.constructions.disguises import disguised, rounded
from models.constructions.mistakes import MISTAKES
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer

N_CONTEXT, KAPPA, PROMPTS = 12, 5.0, 32
ROUNDING: dict[str, Callable[[HookedTransformer], HookedTransformer]] = {
    "float32": lambda model: rounded(model, torch.float32),
    "bfloat16": lambda model: rounded(model, torch.bfloat16),
}
CLEAN = ("exact", "float32", "bfloat16", "1e-4", "1e-3")
NOISY = "1e-2"


@dataclass(frozen=True)
class Config:
    """How many instances of each kind: `members` of each family up to noise 1e-3 and again at 1e-2, `decoys` and
    `mistakes` of each of their kinds."""

    seed: int = 0
    members: int = 25
    decoys: int = 25
    mistakes: int = 10

    def __post_init__(self) -> None:
        if self.members < 1 or self.decoys < 1 or self.mistakes < 1:
            raise ValueError(
                f"members={self.members}, decoys={self.decoys}, mistakes={self.mistakes} must be at least 1"
            )


@dataclass(frozen=True)
class Case:
    """One model: the name that is right for it, how it was drawn, what was done to its weights, its true settings."""

    truth: str
    kind: str
    weights: str
    construction: Construction
    seed: int


@dataclass(frozen=True)
class Outcome:
    """A case with the answer it got.

    Args:
        error: of the settings, relative, where the weights are exact and the name is right.
        names_layer: does the answer name the layer that was spoilt; None where none was.
    """

    case: Case
    verdict: str
    error: float | None
    names_layer: bool | None


@dataclass(frozen=True)
class Benchmark:
    """All outcomes."""

    config: Config
    outcomes: tuple[Outcome, ...]

    def of(self, kind: str, noisy: bool | None = None) -> list[Outcome]:
        chosen = [outcome for outcome in self.outcomes if outcome.case.kind == kind]
        return chosen if noisy is None else [entry for entry in chosen if (entry.case.weights == NOISY) == noisy]

    def confusion(self) -> dict[str, dict[str, int]]:
        """Truth → verdict → count."""
        table: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            table.setdefault(outcome.case.truth, Counter())[outcome.verdict] += 1
        return {truth: dict(counts) for truth, counts in table.items()}

    def to_dict(self) -> dict[str, Any]:
        errors = [outcome.error for outcome in self.of("member", noisy=False) if outcome.error is not None]
        decoys = self.of("decoy")
        named = [entry.names_layer for entry in decoys if entry.names_layer is not None]
        return {
            "seed": self.config.seed,
            "named_up_to_1e-3": _share(self.of("member", noisy=False)),
            "named_at_1e-2": _share(self.of("member", noisy=True)),
            "mistakes_named_as_the_larger_family": _share(self.of("mistake")),
            "decoys_unknown": _share(decoys),
            "spoilt_layers_named": [sum(named), len(named)],
            "false_names": sum(
                outcome.verdict not in (outcome.case.truth, "unknown", "tie") for outcome in self.outcomes
            ),
            "largest_error_of_exact_settings": max(errors, default=None),
            "exact_settings_compared": len(errors),
            "confusion": self.confusion(),
        }

    def __str__(self) -> str:
        values = self.to_dict()
        lines = [f"identification of disguised models, seed {self.config.seed}"]
        for name in list(values)[1:-1]:
            value = values[name]
            shown = (
                f"{value[0]} of {value[1]}"
                if isinstance(value, list)
                else value
                if isinstance(value, int)
                else f"{value:.2g}"
            )
            lines.append(f"  {name.replace('_', ' '):<40}{shown}")
        for truth, counts in values["confusion"].items():
            lines.append(f"  {truth:<20} → " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()))
        return "\n".join(lines)


def run(config: Config) -> Benchmark:
    """Draw, write, answer in another process, compare."""
    cases = list(_cases(config))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for number, case in enumerate(cases):
            _write(case, directory / f"{number:05d}.npz")
        note(f"{len(cases)} models written; identifying them in another process")
        answers = _answers(directory)
    return Benchmark(config, tuple(_outcome(case, answer) for case, answer in zip(cases, answers, strict=True)))


def _cases(config: Config) -> Iterator[Case]:
    def drawn(table: Mapping[str, Any], kind: str, count: int, weights: Sequence[str]) -> Iterator[Case]:
        for row, draw in enumerate(table.values()):
            for number in range(count):
                seed = 1_000_003 * config.seed + 1009 * row + number
                sizes = {"d": 3 + seed % 3, "d_out": 1 + seed % 2, "layers": 3 + seed % 2}
                construction = draw(seed, n=N_CONTEXT, n_query=2, **sizes)
                yield Case(construction.family, kind, weights[number % len(weights)], construction, seed)

    yield from drawn(CONSTRUCTIONS, "member", config.members, CLEAN)
    yield from drawn(CONSTRUCTIONS, "member", config.members, (NOISY,))
    yield from drawn(DECOYS, "decoy", config.decoys, ("exact",))
    yield from drawn(MISTAKES, "mistake", config.mistakes, ("exact", "1e-3"))


def _write(case: Case, path: Path) -> None:
    """The disguised matrices, and prompts as tokens of their layout."""
    model, noise = case.construction.model, 0.0
    if case.weights in ROUNDING:
        model = ROUNDING[case.weights](model)
    elif case.weights != "exact":
        noise = float(case.weights)
    model = disguised(model, case.seed, noise)
    widths, queries = model.layout.widths, model.layout.n_query
    family = LogUniformSpectrum(n=N_CONTEXT, d=widths["x"], n_query=queries, d_out=widths["y"], kappa=KAPPA)
    tokens = replace(case.construction, model=model).tokens(family.sample(PROMPTS, seed=case.seed))
    bare.save(model, path)
    np.save(path.with_suffix(".npy"), tokens.numpy())


def _answers(directory: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "analyses.identify_bare", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"the answering process failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _outcome(case: Case, answer: Mapping[str, Any]) -> Outcome:
    exact = case.weights == "exact" and answer["verdict"] == case.truth and case.kind == "member"
    error = settings_error(case.construction.settings, answer["settings"]) if exact else None
    layer = case.construction.settings.get("layer")
    named = None if layer is None else any(f"layer {layer}:" in text for text in answer["notes"])
    return Outcome(case, answer["verdict"], error, named)


def settings_error(true: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The largest relative error of the settings that both state; lists as far as the shorter one: a last η is dead."""
    worst, stated = 0.0, set(true) & set(found)
    if not stated:
        raise ValueError(f"none of the settings {sorted(true)} is among those found, {sorted(found)}")
    for name in stated:
        if isinstance(true[name], str):
            worst = max(worst, float(true[name] != found[name]))
            continue
        a, b = np.atleast_1d(np.asarray(true[name], dtype=float)), np.atleast_1d(np.asarray(found[name], dtype=float))
        length = min(len(a), len(b))
        worst = max(worst, float(np.abs(a[:length] - b[:length]).max() / max(np.abs(a[:length]).max(), 1e-300)))
    return worst


def _share(outcomes: Sequence[Outcome]) -> list[int]:
    """Right answers, and all."""
    return [sum(outcome.verdict == outcome.case.truth for outcome in outcomes), len(outcomes)]


def command(
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 0,
    members: Annotated[int, typer.Option(help="Instances of each family.")] = Config.members,
    decoys: Annotated[int, typer.Option(help="Instances of each kind of decoy.")] = Config.decoys,
    mistakes: Annotated[int, typer.Option(help="Instances of each kind of mistake.")] = Config.mistakes,
    figure: Annotated[Path | None, typer.Option(help="Draw the confusion table to this file.")] = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="What to print.")] = "text",
) -> None:
    """Measure the identifier on drawn models. Exit code 1 if one was given a false name."""
    result = run(Config(seed, members, decoys, mistakes))
    if figure is not None:
        from analyses.figures import draw_confusion

        draw_confusion(result.confusion(), f"identification, seed {seed}", figure)
    typer.echo(to_json(result.to_dict()) if format == "json" else str(result))
    if result.to_dict()["false_names"]:
        raise typer.Exit(1)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m analyses.identify_benchmark …`"""
    return run_command(command, argv)


if __name__ == "__main__":
    sys.exit(main())
