"""What identification looks at: word coefficients, how much they leave out, and how exactly they are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.unrolling import UpdateRule
from interp.unrolling.fit import word_update
from interp.unrolling.rule import live_part
from interp.unrolling.words import Word, inner_products

TOLERANCE = 4 * 2**-9  # relative: four weights rounded to bfloat16
NOISE_FACTOR = 2.0

Key = tuple[int, Word]  # number of the group in its layer, word


@dataclass(frozen=True)
class Evidence:
    """One layer.

    Args:
        coefficients: by (group, word), least squares on the weights.
        gram: inner products of the words in the order of `coefficients`, relative to the squared norm of the layer's
            update, or of its terms if these cancel: of the updates that the words make on prompts, or of their tensors.
        weight_gram: the same of their tensors.
        residual: the norm of what the words leave out of the layer's tensors, relative.
        tolerance: relative distance within which coefficients count as equal: `TOLERANCE` plus `NOISE_FACTOR` times
            what weight noise makes of them. A residual r of the tensors is noise on Q and V whose share in a
            coefficient, which averages it over traces, is about r / d_model of the tensors' norm over the word's.
        amplification: the norm in `gram` of one unit of each word's tensor.
    """

    coefficients: Mapping[Key, float]
    gram: Float[Tensor, "word word"]
    weight_gram: Float[Tensor, "word word"]
    residual: float
    tolerance: float
    amplification: float

    def distance(self, fitted: Mapping[Key, float]) -> float:
        """‖Σ (c − c_fitted) word‖ relative to the layer's update; words that are not fitted have coefficient 0."""
        return self._norm(fitted, self.gram)

    def weight_distance(self, fitted: Mapping[Key, float]) -> float:
        """The same relative to the layer's tensors."""
        return self._norm(fitted, self.weight_gram)

    def _norm(self, fitted: Mapping[Key, float], gram: Tensor) -> float:
        lost = torch.tensor([c - fitted.get(key, 0.0) for key, c in self.coefficients.items()], dtype=torch.float64)
        return max(0.0, (lost @ gram @ lost).item()) ** 0.5


def gather(rule: UpdateRule, tokens: Float[Tensor, "batch token d_model"] | None) -> list[Evidence]:
    """The evidence of every layer: in function space on prompts, at the model's own states, or without in weights."""
    states = None if tokens is None else list(rule.states(tokens, "exact"))
    found = []
    for index, layer in enumerate(rule.layers):
        coefficients = {
            (number, word): value for number, item in enumerate(layer.groups) for word, value in item.projected.items()
        }
        weights, residual = _weight_gram(rule, index, coefficients)
        gram = weights if states is None else _function_gram(rule, index, coefficients, states[index], weights)
        amplification = (gram.diagonal() / weights.diagonal()).sum().sqrt().item()
        tolerance = TOLERANCE + NOISE_FACTOR * residual / rule.layout.d_model * amplification
        found.append(Evidence(coefficients, gram, weights, residual, tolerance, amplification))
    return found


def _weight_gram(rule: UpdateRule, index: int, keys: Mapping[Key, float]) -> tuple[Tensor, float]:
    groups = rule.layers[index].groups
    squared = sum(item.fit.norm**2 for item in groups) or 1.0
    residual = (sum(item.fit.residual**2 for item in groups) / squared) ** 0.5
    blocks = [
        inner_products([word for group, word in keys if group == i], rule.layout.widths) for i in range(len(groups))
    ]
    return torch.block_diag(*blocks)[: len(keys), : len(keys)] / squared, residual


def _function_gram(
    rule: UpdateRule, index: int, keys: Mapping[Key, float], z: Tensor, weights: Tensor
) -> Float[Tensor, "word word"]:
    """Inner products of the words' updates on prompts, every prompt with the same weight.

    Updates are divided by the norm of the layer's own, or of its terms where these are larger: near convergence they
    cancel, and what is left says little about each. Words that these prompts do not show, and layers that do nothing on
    them, are measured by their weights.
    """
    layer = rule.layers[index]

    def flat(update: Tensor) -> Tensor:
        return live_part(layer, rule.layout, update).flatten(1)

    exact = flat(rule.step(index, z, "exact"))
    size = exact.norm(dim=1, keepdim=True)
    usable = torch.isfinite(size[:, 0]) & (size[:, 0] > 0)
    if not keys or not size.any():
        return weights
    if not usable.any():
        raise ValueError(f"identify: layer {index}'s update overflows on every prompt; give smaller prompts, or none")
    updates = [flat(word_update(rule, layer.groups[group], word, z)) for group, word in keys]
    features = torch.stack([(update / size)[usable].flatten() for update in updates])
    count = int(usable.sum())
    values = torch.tensor(list(keys.values()), dtype=torch.float64).to(features)
    gram = features @ features.T / count
    gram = (gram / (values.square() @ gram.diagonal()).clamp(min=1.0)).cpu()
    unseen = gram.diagonal() == 0
    return gram + torch.diag(weights.diagonal() * unseen)


def shared(evidence: Sequence[Evidence], key: Key) -> list[float]:
    """The coefficient of one word in the layers that have it."""
    return [layer.coefficients[key] for layer in evidence if key in layer.coefficients]
