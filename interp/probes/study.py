"""Train on one part of the prompts and score on the other, in batches, for all hooks and targets of one source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.covariance import Covariance
from interp.layout import BlockLayout
from interp.probes.fitters import Fitter, Predictor
from interp.probes.readings import Reading
from interp.probes.scores import BLOCKS, BlockSums, Score
from interp.probes.stream import ModelSource, PromptSource, batches
from interp.probes.targets import TARGETS, Blocks

Key = tuple[str, str, bool]  # hook, target, shuffled
Found = dict[Key, tuple[Predictor, Score]]


@dataclass(frozen=True)
class Study:
    """Prompts, targets and the split, shared by the model and its controls.

    The last `held_out` prompts are held out. Shuffled targets are those of another prompt of the same part.
    """

    tokens: Float[Tensor, "prompt token d_in"]
    layout: BlockLayout
    reading: Reading
    targets: Sequence[str]
    held_out: int
    ridge: float = 0.0
    batch: int = 256
    seed: int = 0
    covariance: Covariance | None = None

    @property
    def train(self) -> int:
        return len(self.tokens) - self.held_out

    @cached_property
    def partner(self) -> Int[Tensor, "prompt"]:
        """Which prompt's targets stand in for each prompt's when shuffled; training and held-out prompts apart."""
        generator = torch.Generator().manual_seed(self.seed)
        parts = (torch.randperm(size, generator=generator) for size in (self.train, self.held_out))
        first, second = parts
        return torch.cat([first, self.train + second])

    def truth(self, rows: Int[Tensor, "batch"]) -> dict[str, Float[Tensor, "sample column"]]:
        """The targets of some prompts."""
        tokens = self.tokens[rows.to(self.tokens.device)]
        blocks = Blocks.of(tokens, self.layout, self.ridge, self.covariance)
        return {name: self.reading.samples(TARGETS[name](blocks)).flatten(0, 1) for name in self.targets}

    def columns(self, rows: Int[Tensor, "batch"], shuffled: bool) -> Float[Tensor, "sample column"]:
        """All targets side by side; with `shuffled` the shuffled ones after them."""
        parts = [*self.truth(rows).values()]
        if shuffled:
            parts += self.truth(self.partner[rows]).values()
        return torch.cat(parts, dim=1)

    def slices(self, shuffled: bool) -> dict[tuple[str, bool], slice]:
        """Where each target lies among the columns."""
        widths = {name: values.shape[1] for name, values in self.truth(torch.arange(1)).items()}
        found, start = {}, 0
        for mixed in (False, True) if shuffled else (False,):
            for name, width in widths.items():
                found[name, mixed], start = slice(start, start + width), start + width
        return found

    def run(self, source: ModelSource | PromptSource, make: Callable[[], Fitter], shuffled: bool = False) -> Found:
        """Fit on the training prompts, score on the held-out ones: probe and score by hook, target, shuffled."""
        probes = self._fit(source, make, shuffled)
        sums = self._sums(source, probes, shuffled)
        return {key: (probe, sums[key].score()) for key, probe in probes.items()}

    def _fit(
        self, source: ModelSource | PromptSource, make: Callable[[], Fitter], shuffled: bool
    ) -> dict[Key, Predictor]:
        fitters = {name: make() for name in source.hooks}
        for rows in batches(torch.arange(self.train), self.batch):
            y = self.columns(rows, shuffled)
            for name, features in self._features(source, rows).items():
                fitters[name].update(features, y)
        where = self.slices(shuffled)
        return {
            (name, *which): probe
            for name, fitter in fitters.items()
            for which, probe in zip(where, fitter.fit(list(where.values())), strict=True)
        }

    def _sums(
        self, source: ModelSource | PromptSource, probes: Mapping[Key, Predictor], shuffled: bool
    ) -> dict[Key, BlockSums]:
        where, sums = self.slices(shuffled), {}
        pieces = torch.arange(self.train, len(self.tokens)).tensor_split(min(BLOCKS, self.held_out))
        for block, piece in enumerate(pieces):
            for rows in batches(piece, self.batch):
                y = self.columns(rows, shuffled)
                features = self._features(source, rows)
                for key, probe in probes.items():
                    name, target, mixed = key
                    truth = y[:, where[target, mixed]]
                    if key not in sums:
                        sums[key] = BlockSums(len(pieces), truth.mean(0))
                    sums[key].add(block, truth, probe.predict(features[name]))
        return sums

    def _features(
        self, source: ModelSource | PromptSource, rows: Int[Tensor, "batch"]
    ) -> dict[str, Float[Tensor, "sample feature"]]:
        found = source(self.tokens[rows.to(self.tokens.device)])
        return {name: features.flatten(0, 1) for name, features in found.items()}
