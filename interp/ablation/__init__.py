"""Ablations: kernels swapped, heads, MLPs, layers and words removed, early exits; effects beside the clean value."""

from interp.ablation.ablate import (
    ablate,
    block_ablations,
    everything,
    exits,
    head_ablations,
    kernel_swaps,
    swapped,
)
from interp.ablation.attention import check_pattern_edits
from interp.ablation.descent import WordAblation, ablate_word
from interp.ablation.edits import MODES, Reference, ablate_head, ablate_layer, ablate_mlp, early_exit
from interp.ablation.effects import Effect, Measure, Metric
from interp.ablation.intervention import Intervention
from interp.ablation.result import Ablation, Row
from interp.ablation.runs import Runs
from interp.ablation.swap import swap_kernel
from interp.ablation.words import remove_word, two_word_core, without_word, word_named

__all__ = [
    "MODES",
    "Ablation",
    "Effect",
    "Intervention",
    "Measure",
    "Metric",
    "Reference",
    "Row",
    "Runs",
    "WordAblation",
    "ablate",
    "ablate_head",
    "ablate_layer",
    "ablate_mlp",
    "ablate_word",
    "block_ablations",
    "check_pattern_edits",
    "early_exit",
    "everything",
    "exits",
    "head_ablations",
    "kernel_swaps",
    "remove_word",
    "swap_kernel",
    "swapped",
    "two_word_core",
    "without_word",
    "word_named",
]
