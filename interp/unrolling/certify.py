"""Rule against model: what a certificate is made of."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import capture, float64_copy, hook_name
from interp.stats import ErrorSummary, central, pooled_errors, relative_errors
from interp.unrolling.certificate import Certificate, LayerCertificate, LevelCertificate, TaskError
from interp.unrolling.fit import explained
from interp.unrolling.moments import check_prompts
from interp.unrolling.rule import Level, UpdateRule, live_part


def certify(rule: UpdateRule, model: Any, prompts: Any) -> Certificate:
    """Compare a rule with the model's forward pass, in float64.

    Args:
        prompts: tokens [batch, token, d_model], or a value with such `.tokens` and, if known, `.target`.
    """
    tokens = check_prompts(prompts, rule.layout)
    if model.cfg.n_layers != rule.depth:
        raise ValueError(
            f"certify: the rule has {rule.depth} layers and the model {model.cfg.n_layers}; unroll this model"
        )
    copy = float64_copy(model)
    states = [rule.layout.coordinates(z) for z in residual_states(copy, tokens)]
    predicted = _answer(copy, tokens, rule.read(states[-1]))
    levels: dict[Level, LevelCertificate] = {
        level: _certify_level(rule, level, tokens, states, predicted) for level in rule.levels
    }
    target = getattr(prompts, "target", None)
    if target is not None and target.shape != predicted.shape:
        raise ValueError(f"certify: the targets are {list(target.shape)} and the answers {list(predicted.shape)}")
    task = None if target is None else _task_error(predicted, target.to(predicted))
    return Certificate(len(tokens), "float64", levels, task, conserved_change(states, rule))


def residual_states(model: Any, tokens: Tensor) -> list[Tensor]:
    """The residual stream before layer 0 and after every layer, from hooks, in the model's dtype."""
    names = [hook_name("resid_pre", 0), *(hook_name("resid_post", layer) for layer in range(model.cfg.n_layers))]
    cache = capture(model, tokens.to(model.blocks[0].attn.W_Q.dtype), names)
    return [cache[name] for name in names]


def _answer(model: Any, tokens: Tensor, read: Float[Tensor, "prompt query out"]) -> Float[Tensor, "prompt query out"]:
    """The model's own answer where it gives one, else what the rule's layout reads off its residual stream."""
    if not hasattr(model, "predict"):
        return read
    with torch.no_grad():
        answer = model.predict(tokens)
    if answer.shape != read.shape:
        raise ValueError(f"certify: the model answers {list(answer.shape)}, the rule's layout reads {list(read.shape)}")
    return answer


def _certify_level(
    rule: UpdateRule, level: Level, tokens: Tensor, states: list[Tensor], predicted: Tensor
) -> LevelCertificate:
    output = ErrorSummary.of(pooled_errors(rule.predict(tokens, level), predicted))
    return LevelCertificate(output, tuple(_certify_layer(rule, level, i, states) for i in range(rule.depth)))


def _certify_layer(rule: UpdateRule, level: Level, index: int, states: list[Tensor]) -> LayerCertificate:
    layer, z = rule.layers[index], states[index]
    truth = live_part(layer, rule.layout, states[index + 1] - z)
    guess = live_part(layer, rule.layout, rule.step(index, z, level))
    size = z[0].numel()
    return LayerCertificate(
        relative_errors(guess, truth).median().item(),
        explained(guess, truth),
        (guess - truth).flatten(1).square().sum(1).median().item() / size,
        truth.flatten(1).square().sum(1).median().item() / size,
    )


def _task_error(predicted: Float[Tensor, "prompt query out"], target: Float[Tensor, "prompt query out"]) -> TaskError:
    squared = (predicted - target).square().flatten(1).mean(1).nan_to_num(nan=torch.inf)
    relative, answer = pooled_errors(predicted, target), target.square().flatten(1).mean(1)
    quantiles = {f"{q:g}": squared.sort().values[round(q * (len(squared) - 1))].item() for q in (0.1, 0.5, 0.9, 0.99)}
    return TaskError(
        squared.median().item(),
        squared.mean().item(),
        central(squared).mean().item(),
        quantiles,
        relative.square().mean().sqrt().item(),
        int((~(squared <= answer.mean())).sum()),
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
