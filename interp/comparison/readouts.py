"""What each layer predicts: by the model's own read-out, and by linear probes of the query rows."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.comparison.problems import Problems
from interp.hooks import capture, hook_name
from interp.probes import PENALTIES, Moments
from interp.probes.ridge import Factor, fit_ridge

OWN, TO_TARGET, TO_KRR = "own read-out", "probe to target", "probe to KRR"

Read = Callable[[Tensor], Tensor]
ByLayer = dict[str, Float[Tensor, "layer batch query out"]]


def own_read(model: Any, queries: int) -> Read | None:
    """The model's read-out of a residual stream at its query rows, or nothing where the model has none we know.

    unembed(ln_final(z)) where both exist (in models of this package also the signed block of a layout), else the
    layout's prediction.
    """
    if hasattr(model, "unembed") and hasattr(model, "ln_final"):
        return lambda z: model.unembed(model.ln_final(z))[:, -queries:]
    layout = getattr(model, "layout", None)
    return None if layout is None else lambda z: layout.predict(z)[:, -queries:]


def residuals(model: Any, problems: Problems) -> list[Float[Tensor, "batch token d_model"]]:
    """The stream after each block, in one forward pass.

    Raises:
        ValueError: it is not finite, with the name of the hook.
    """
    names = [hook_name("resid_post", layer) for layer in range(model.cfg.n_layers)]
    found = capture(model, problems.tokens, names)
    for name in names:
        if not found[name].isfinite().all():
            raise ValueError(
                f"compare: the activations at {name!r} hold NaN or inf on these prompts; give others, or mend the model"
            )
    return [found[name] for name in names]


def predictions(model: Any, train: Problems, test: Problems, krr: tuple[Tensor, Tensor], read: Read | None) -> ByLayer:
    """Predictions at depths 1 … L on the test prompts, by each read-out.

    Args:
        krr: the KRR predictions on the training prompts and on the test prompts.
        read: residual stream [batch, token, d_model] → predictions [batch, query, out]; None for the probes alone.

    A probe is ridge regression with an intercept on the entries of the stream at the query rows, fitted on the training
    prompts, its penalty chosen by GCV (`interp.probes.RidgeProbe`).
    """
    before, after = residuals(model, train), residuals(model, test)
    found: ByLayer = {}
    if read is not None:
        with torch.no_grad():
            found[OWN] = torch.stack([checked(read(z), test.target) for z in after])
    for name, goal in ((TO_TARGET, train.target), (TO_KRR, krr[0])):
        layers = [probed(x, z, goal) for x, z in zip(before, after, strict=True)]
        found[name] = torch.stack(layers)
    return found


def probed(
    train: Float[Tensor, "batch token d_model"],
    test: Float[Tensor, "prompt token d_model"],
    goal: Float[Tensor, "batch query out"],
) -> Float[Tensor, "prompt query out"]:
    """A probe fitted to the goal on the query rows of some prompts, applied to those of others."""
    queries, out = goal.shape[1:]
    moments = Moments.of(train[:, -queries:].flatten(0, 1), goal.flatten(0, 1))
    factor = Factor.of(moments)
    fit = fit_ridge(moments, [factor.unit * alpha for alpha in PENALTIES], factor)
    return fit.predict(test[:, -queries:].flatten(0, 1).double()).reshape(len(test), queries, out)


def checked(values: Tensor, target: Tensor) -> Tensor:
    """A read-out gives one finite value a query and output."""
    if values.shape != target.shape:
        raise ValueError(
            f"compare: the read-out gives the shape {list(values.shape)} and the target has {list(target.shape)}; "
            "give read=, a function of the residual stream [batch, token, d_model]"
        )
    if not values.isfinite().all():
        raise ValueError("compare: the read-out gives NaN or inf on these prompts; give others, or mend the model")
    return values.double()
