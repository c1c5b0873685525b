"""The same function in other weights.

A disguise takes a model and a seed and returns another model in float64; disguises compose. Every one keeps the
predictions on the same block coordinates. `rotated` and `rescaled` change the basis of the residual stream, and with it
the layout: the tokens change from z to z basisᵀ, as `embed` with the new layout makes them. Those in `LINEAR_ONLY`
rewrite the sum Σ_h Q_h ⊗ V_h and need a linear kernel; the others hold for every kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from models.constructions.heads import (
    Weights,
    circuits_of,
    fewest_heads,
    from_circuits,
    trade,
    visibility_groups,
    weights_of,
    with_weights,
)
from models.prompts.random import gaussian, haar_frames
from models.transformer import HookedTransformer

Disguise = Callable[[HookedTransformer, int], HookedTransformer]
Rewrite = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
ROTATION_SAFE = ("gaussian", "laplace")
PERMUTATION_SAFE = ("relu", "elu1")


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _gauge(count: Sequence[int], size: int, generator: torch.Generator) -> Float[Tensor, "layer head size size"]:
    """Invertible matrices with singular values between 1/2 and 2."""
    layers, heads = count
    left, right = (haar_frames(layers * heads, size, size, generator) for _ in range(2))
    exponent = 2 * torch.rand(layers * heads, 1, size, generator=generator, dtype=torch.float64) - 1
    return ((left * 2**exponent) @ right.mT).unflatten(0, (layers, heads))


def query_key_gauge(model: HookedTransformer, seed: int) -> HookedTransformer:
    """W_Q G and W_K G⁻ᵀ a head: G invertible; orthogonal if the kernel measures distances, a permutation for relu."""
    W, similarity, size = weights_of(model), model.cfg.kernel.similarity, model.cfg.d_head
    count, generator = W["W_Q"].shape[:2], _generator(seed)
    if similarity in ROTATION_SAFE:
        G = haar_frames(count[0] * count[1], size, size, generator).unflatten(0, count)
    elif similarity in PERMUTATION_SAFE:
        G = torch.eye(size, dtype=torch.float64)[torch.randperm(size, generator=generator)].expand(*count, -1, -1)
    else:
        G = _gauge(count, size, generator)
    return with_weights(model, {**W, "W_Q": W["W_Q"] @ G, "W_K": W["W_K"] @ torch.linalg.inv(G).mT})


def value_output_gauge(model: HookedTransformer, seed: int) -> HookedTransformer:
    """W_V G and G⁻¹ W_O a head."""
    W = weights_of(model)
    G = _gauge(W["W_V"].shape[:2], model.cfg.d_head, _generator(seed))
    return with_weights(model, {**W, "W_V": W["W_V"] @ G, "W_O": torch.linalg.inv(G) @ W["W_O"]})


def split(model: HookedTransformer, seed: int) -> HookedTransformer:
    """One head as three, which share its values at random."""
    W, generator = weights_of(model), _generator(seed)
    head = int(torch.randint(model.cfg.n_heads, (), generator=generator))
    origin = [h for h in range(model.cfg.n_heads) for _ in range(3 if h == head else 1)]
    share = torch.ones(len(origin), 1, 1, dtype=torch.float64)
    parts = 0.2 + torch.rand(3, generator=generator, dtype=torch.float64)
    share[head : head + 3, 0, 0] = parts / parts.sum()
    spread = {name: weight[:, origin] for name, weight in W.items()}
    return with_weights(model, {**spread, "W_V": share * spread["W_V"]}, origin)


def permuted(model: HookedTransformer, seed: int) -> HookedTransformer:
    """The heads in another order."""
    order = torch.randperm(model.cfg.n_heads, generator=_generator(seed)).tolist()
    return with_weights(model, {name: weight[:, order] for name, weight in weights_of(model).items()}, order)


def dummy_heads(model: HookedTransformer, seed: int) -> HookedTransformer:
    """Two more heads of the size of the others, which cancel: one score, one value, opposite outputs."""
    W, generator = weights_of(model), _generator(seed)
    head = int(torch.randint(model.cfg.n_heads, (), generator=generator))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
    more: Weights = {}
    for name, weight in W.items():
        size = weight.square().mean().sqrt()
        new = size * gaussian((weight.shape[0], 1, *weight.shape[2:]), generator)
        more[name] = torch.cat([weight, new * sign if name == "W_O" else new.expand(-1, 2, -1, -1)], dim=1)
    return with_weights(model, more, [*range(model.cfg.n_heads), head, head])


def rotated(model: HookedTransformer, basis: Float[Tensor, "d_model d_model"]) -> HookedTransformer:
    """The model whose residual rows, and tokens, are z basisᵀ, with the layout that says so; basis is invertible."""
    W, basis, layout = weights_of(model), basis.double(), model.layout
    inverse = torch.linalg.inv(basis)
    turned = {name: weight @ basis.mT if name == "W_O" else inverse.mT @ weight for name, weight in W.items()}
    columns = {name: basis @ block for name, block in layout.columns.items()}
    return with_weights(model, turned, layout=replace(layout, columns=columns))


def rotation(model: HookedTransformer, seed: int) -> HookedTransformer:
    """The residual stream in a random orthonormal basis."""
    return rotated(model, haar_frames(1, model.cfg.d_model, model.cfg.d_model, _generator(seed))[0])


def rescaled(model: HookedTransformer, seed: int) -> HookedTransformer:
    """x-columns and y-columns of the residual stream in other units, from 1/2 to 2, which the layout's bases state.

    Blocks that rotate with x or y take its unit, others keep theirs. The tokens change by the same factors; the block
    coordinates, and with them all coefficients, do not.
    """
    layout, generator = model.layout, _generator(seed)
    factor = {name: 2 ** (2 * torch.rand((), generator=generator).item() - 1) for name in ("x", "y")}
    return rotated(model, _stretch(layout, factor))


def _stretch(layout: BlockLayout, factor: dict[str, float]) -> Float[Tensor, "d_model d_model"]:
    units = [factor.get(layout.rotates_with(name), 1.0) for name, width in layout.widths.items() for _ in range(width)]
    return layout.basis @ torch.diag(torch.tensor(units, dtype=torch.float64)) @ layout.dual.T


def mixed(model: HookedTransformer, seed: int) -> HookedTransformer:
    """Heads of one visibility replaced by as many combinations: Σ_h M_gh Q_h and Σ_h (M⁻ᵀ)_gh V_h. Linear kernels."""
    Q, V = (matrix.clone() for matrix in circuits_of(model))
    generator = _generator(seed)
    for members in visibility_groups(model):
        M = _gauge((Q.shape[0], 1), len(members), generator)[:, 0]
        Q[:, members] = torch.einsum("lgh,lhab->lgab", M, Q[:, members])
        V[:, members] = torch.einsum("lgh,lhab->lgab", torch.linalg.inv(M).mT, V[:, members])
    return from_circuits(model, Q, V, list(range(model.cfg.n_heads)))


def merged(model: HookedTransformer, seed: int = 0) -> HookedTransformer:
    """As few heads a visibility as the same sum Σ_h Q_h ⊗ V_h allows. Linear kernels; the seed has no effect."""
    return _rewritten(model, fewest_heads)


def traded(model: HookedTransformer, seed: int = 0) -> HookedTransformer:
    """Q and V trade places inside the symmetrisation: T[a, b, c, j] becomes T[a, c, b, j], which no S can tell apart.

    Linear kernels; the seed has no effect. A head becomes up to rank(Q) · rank(V) heads.
    """
    return _rewritten(model, lambda Q, V: fewest_heads(*trade(Q, V)))


def _rewritten(model: HookedTransformer, change: Rewrite) -> HookedTransformer:
    """The model with the heads (Q, V) of every layer and visibility changed."""
    Q, V = circuits_of(model)
    origin: list[int] = []
    new_Q, new_V = [], []
    for members in visibility_groups(model):
        layers = [change(q[members], v[members]) for q, v in zip(Q, V, strict=True)]
        heads = max(1, *(len(q) for q, _ in layers))
        new_Q.append(torch.stack([_padded(q, heads) for q, _ in layers]))
        new_V.append(torch.stack([_padded(v, heads) for _, v in layers]))
        origin += [members[0]] * heads
    return from_circuits(model, torch.cat(new_Q, dim=1), torch.cat(new_V, dim=1), origin)


def _padded(heads: Tensor, count: int) -> Tensor:
    return torch.cat([heads, heads.new_zeros(count - len(heads), *heads.shape[1:])])


def noisy(model: HookedTransformer, seed: int, size: float) -> HookedTransformer:
    """Every weight tensor of every layer plus Gaussian noise of that relative Frobenius size (about)."""
    generator, noisy_weights = _generator(seed), {}
    for name, weight in weights_of(model).items():
        spread = weight.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
        noisy_weights[name] = weight + size * spread * gaussian(weight.shape, generator)
    return with_weights(model, noisy_weights)


def rounded(model: HookedTransformer, dtype: torch.dtype) -> HookedTransformer:
    """Weights rounded to float32 or bfloat16 and kept in float64."""
    return with_weights(model, {name: weight.to(dtype).double() for name, weight in weights_of(model).items()})


DISGUISES: dict[str, Disguise] = {
    "query-key gauge": query_key_gauge,
    "value-output gauge": value_output_gauge,
    "split": split,
    "permuted": permuted,
    "dummy heads": dummy_heads,
    "rotation": rotation,
    "rescaled": rescaled,
    "mixed": mixed,
    "merged": merged,
    "traded": traded,
}
LINEAR_ONLY = ("mixed", "merged", "traded")
WIDE = 12
"""Residual streams wider than this are not traded by `disguised`: that takes hundreds of heads."""


def disguised(model: HookedTransformer, seed: int, noise: float = 0.0) -> HookedTransformer:
    """Weight noise on the model as it is, then four disguises that hold for its kernel, at random, one on the other.

    The noise comes first so that its size means the same for every disguise: on weights already in disguise (units that
    differ by 4, a gauge of condition 4) the same relative noise can be many times as large in the function.
    """
    names = [name for name in DISGUISES if model.cfg.kernel.is_linear or name not in LINEAR_ONLY]
    names = [name for name in names if name != "traded" or model.cfg.d_model <= WIDE]
    order = torch.randperm(len(names), generator=_generator(seed)).tolist()
    model = noisy(model, seed, noise) if noise else model
    for step, index in enumerate(order[:4]):
        model = DISGUISES[names[index]](model, seed + step)
    return model
