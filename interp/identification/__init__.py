"""Which known algorithm a rule is: a family that holds it, a tie, or unknown."""

from typing import Any

from torch import Tensor

from interp.identification.distributed import distributed_eagle
from interp.identification.evidence import gather
from interp.identification.families import TWO_WORDS, Fitter, preconditioned_descent, two_word_family
from interp.identification.functional import functional_descent
from interp.identification.patterns import averaging, heavy_ball, ridge_descent
from interp.identification.richardson import preconditioned_richardson
from interp.identification.verdict import Identification, Ranked, decide, effective_degree
from interp.layout import BlockLayout
from interp.unrolling import UpdateRule, layout_of, unroll
from interp.unrolling.certify import residual_states
from interp.unrolling.circuits import check_attention_only
from interp.unrolling.moments import check_prompts

__all__ = ["FAMILIES", "Identification", "Ranked", "identify"]

FAMILIES: dict[str, Fitter] = {
    **{name: two_word_family(name) for name in TWO_WORDS},
    "preconditioned GD": preconditioned_descent,
    "heavy ball": heavy_ball,
    "ridge GD": ridge_descent,
    "averaging": averaging,
    "distributed EAGLE": distributed_eagle,
}


def identify(subject: Any, prompts: Any = None, layout: BlockLayout | None = None) -> Identification:
    """Name the algorithm of a model, or say that it is unknown.

    Every family is fitted. Those that hold the rule, within the tolerance that the noise of its weights leaves, are
    compared by how many numbers they leave free at this depth, and the smallest wins; equals are a tie.

    Args:
        subject: what `unroll` returned, or a hooked model, attention-only, with linear or other kernels; or, with
            prompts, one of softmax attention with MLPs, which is preconditioned Richardson or unknown.
        prompts: tokens [batch, token, d_model], or a value with such `.tokens`, on which the families are compared in
            function space; without them distances are of weights, in which columns that are constant count for little.
        layout: of a model that does not carry its own.

    Raises:
        ValueError: the model is neither a composition of cubic maps nor one of attention with a fixed kernel.
    """
    if isinstance(subject, UpdateRule):
        return _of_rule(subject, None if prompts is None else check_prompts(prompts, subject.layout))
    layout = layout_of(subject, layout)
    tokens = None if prompts is None else check_prompts(prompts, layout)
    kernel = getattr(subject.cfg, "kernel", None)
    if tokens is not None and str(kernel) == "softmax" and not subject.cfg.attn_only:
        return _of_softmax(subject, layout, tokens)
    if kernel is None or kernel.is_linear or kernel.normalisation != "none":
        return _of_rule(unroll(subject, layout), tokens)
    return _of_kernel(subject, layout, tokens)


def _of_rule(rule: UpdateRule, tokens: Tensor | None) -> Identification:
    evidence = gather(rule, tokens)
    n = None if tokens is None else rule.layout.n_context(tokens.shape[1])
    fits = [fit for fit in (family(rule, evidence, n) for family in FAMILIES.values()) if fit is not None]
    if tokens is not None:
        fits = [fit.on_prompts(rule.layout, tokens) for fit in fits]
    exact = None if tokens is None else rule.predict(tokens, "exact")
    left_out = max(layer.residual for layer in evidence)
    return decide(fits, rule.depth, effective_degree(rule, evidence), tokens, exact, left_out)


def _of_kernel(model: Any, layout: BlockLayout, tokens: Tensor | None) -> Identification:
    check_attention_only(model)
    fit = functional_descent(model, layout)
    exact = None if tokens is None else layout.predict(residual_states(model, tokens)[-1])
    return decide([] if fit is None else [fit], model.cfg.n_layers, None, tokens, exact)


def _of_softmax(model: Any, layout: BlockLayout, tokens: Tensor) -> Identification:
    fit = preconditioned_richardson(model, layout, tokens)
    exact = layout.predict(residual_states(model, tokens)[-1].double())
    return decide([fit], model.cfg.n_layers, None, tokens, exact)
