"""Rule against model: what a certificate is made of."""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import capture, hook_name
from interp.stats import ErrorSummary, central, relative_errors
from interp.unrolling.certificate import Certificate, LayerCertificate, LevelCertificate, TaskError
from interp.unrolling.fit import explained
from interp.unrolling.rule import Level, UpdateRule, live_part

BLOWN_UP = 1.0  # relative error above which the answer 0 would have been better


def certify(rule: UpdateRule, model: Any, prompts: Any) -> Certificate:
    """Compare a rule with the model's forward pass, in float64.

    Args:
        prompts: tokens [batch, token, d_model], or a value with such `.tokens` and, if known, `.target`.
    """
    tokens = getattr(prompts, "tokens", prompts).double()
    states = [rule.layout.coordinates(z) for z in residual_states(model, tokens)]
    predicted = rule.read(states[-1])
    levels: dict[Level, LevelCertificate] = {
        level: _certify_level(rule, level, tokens, states, predicted) for level in rule.levels
    }
    target = getattr(prompts, "target", None)
    task = None if target is None else _task_error(predicted, target.to(predicted))
    return Certificate(len(tokens), "float64", levels, task, conserved_change(states, rule))


def residual_states(model: Any, tokens: Tensor) -> list[Tensor]:
    """The residual stream before layer 0 and after every layer, from hooks on a float64 copy of the model."""
    copy = deepcopy(model).double()
    depth = copy.cfg.n_layers
    names = [hook_name("resid_pre", 0), *(hook_name("resid_post", layer) for layer in range(depth))]
    cache = capture(copy, tokens, names)
    return [cache[name] for name in names]


def _certify_level(
    rule: UpdateRule, level: Level, tokens: Tensor, states: list[Tensor], predicted: Tensor
) -> LevelCertificate:
    output = ErrorSummary.of(relative_errors(rule.predict(tokens, level), predicted))
    return LevelCertificate(output, tuple(_certify_layer(rule, level, i, states) for i in range(rule.depth)))


def _certify_layer(rule: UpdateRule, level: Level, index: int, states: list[Tensor]) -> LayerCertificate:
    layer, z = rule.layers[index], states[index]
    n = rule.layout.n_context(z.shape[1])
    truth = live_part(layer, rule.layout, n, states[index + 1] - z)
    guess = live_part(layer, rule.layout, n, rule.step(index, z, level))
    size = z[0].numel()
    return LayerCertificate(
        relative_errors(guess, truth).median().item(),
        explained(guess, truth),
        (guess - truth).flatten(1).square().sum(1).median().item() / size,
        truth.flatten(1).square().sum(1).median().item() / size,
    )


def _task_error(predicted: Float[Tensor, "prompt query out"], target: Float[Tensor, "prompt query out"]) -> TaskError:
    squared = (predicted - target).square().flatten(1).mean(1).nan_to_num(nan=torch.inf)
    relative = relative_errors(predicted, target)
    quantiles = {f"{q:g}": squared.sort().values[round(q * (len(squared) - 1))].item() for q in (0.1, 0.5, 0.9, 0.99)}
    return TaskError(
        squared.median().item(),
        squared.mean().item(),
        central(squared).mean().item(),
        quantiles,
        relative.square().mean().sqrt().item(),
        int((relative > BLOWN_UP).sum()),
    )


def conserved_change(states: list[Tensor], rule: UpdateRule) -> tuple[float, ...]:
    """Median of ‖K_l − K_0‖ / ‖K_0‖, K = D − B A⁺ C of the model's states at depth 0 … L−1.

    At depth L the x columns are not read and hold anything. Empty for layouts of other than two blocks.
    """
    if len(rule.layout.columns) != 2:
        return ()
    y = rule.layout.slices[rule.layout.readout]
    x = next(at for name, at in rule.layout.slices.items() if name != rule.layout.readout)

    def conserved(z: Tensor) -> Tensor:
        context, query = z[:, : -rule.layout.n_query], z[:, -rule.layout.n_query :]
        return query[..., y] - query[..., x] @ torch.linalg.pinv(context[..., x], rtol=1e-10) @ context[..., y]

    start, *later = [conserved(z.nan_to_num()) for z in states[:-1]]
    return tuple(relative_errors(value, start).median().item() for value in [start, *later])
