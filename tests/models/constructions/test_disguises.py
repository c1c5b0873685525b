"""A disguise changes the weights and not the function; noise and rounding change it by as much as they say."""

from dataclasses import replace

import pytest
import torch

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.constructions import CONSTRUCTIONS, Construction, PromptShape, functional_gradient_descent
from models.constructions.disguises import (
    DISGUISES,
    LINEAR_ONLY,
    disguised,
    merged,
    mixed,
    noisy,
    rescaled,
    rotation,
    rounded,
    split,
    traded,
)
from models.constructions.heads import weights_of
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer

PROMPTS = LogUniformSpectrum(n=12, d=3, n_query=2, d_out=2, kappa=5).sample(4, seed=0)
CASES = [(family, name) for family in CONSTRUCTIONS for name in DISGUISES]
CASES = [(family, name) for family, name in CASES if family != "functional GD" or name not in LINEAR_ONLY]


def member(family: str, seed: int = 3, layers: int = 2) -> Construction:
    return CONSTRUCTIONS[family](seed, 3, 2, 12, layers, 2)


def weights_differ(first: HookedTransformer, second: HookedTransformer) -> bool:
    old, new = weights_of(first), weights_of(second)
    return any(old[name].shape != new[name].shape or not torch.allclose(old[name], new[name]) for name in old)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_same_function_in_other_weights(family: str, name: str):
    plain = member(family)
    hidden = replace(plain, model=DISGUISES[name](plain.model, 1))
    torch.testing.assert_close(hidden.predict(PROMPTS), plain.predict(PROMPTS), rtol=1e-10, atol=1e-11)
    alone = plain.model.cfg.n_heads == 1 and name == "permuted"
    assert weights_differ(plain.model, hidden.model) or alone
    assert hidden.model.dtype == torch.float64


@pytest.mark.parametrize("similarity", ["exp", "gaussian", "laplace", "relu"])
def test_gauges_keep_every_kernel(similarity: str):
    plain = functional_gradient_descent(PromptShape(3, 2, 2), similarity, [0.05, 0.08])
    for name in sorted(set(DISGUISES) - set(LINEAR_ONLY)):
        hidden = replace(plain, model=DISGUISES[name](plain.model, 2))
        torch.testing.assert_close(hidden.predict(PROMPTS), plain.predict(PROMPTS), rtol=1e-9, atol=1e-10)


def test_seeds_differ_and_repeat():
    model = member("heavy ball").model
    for name in sorted(set(DISGUISES) - {"merged", "traded"}):
        first, again, other = (DISGUISES[name](model, seed) for seed in (1, 1, 4))
        assert not weights_differ(first, again) and weights_differ(first, other)


@pytest.mark.parametrize("family", CONSTRUCTIONS)
def test_disguises_compose(family: str):
    plain = member(family)
    for seed in range(4):
        hidden = replace(plain, model=disguised(plain.model, seed))
        torch.testing.assert_close(hidden.predict(PROMPTS), plain.predict(PROMPTS), rtol=1e-8, atol=1e-9)
        assert weights_differ(plain.model, hidden.model)


def test_heads_of_different_roles_stay_apart():
    """Split, permuted, mixed and merged heads keep the visibility they came from."""
    model = split(split(member("distributed EAGLE").model, 1), 2)
    assert model.cfg.n_heads == 6 and len(set(model.layout.head_visibility(6))) == 2
    fewest = merged(mixed(model, 3))
    assert fewest.cfg.n_heads == 2 and len(set(fewest.layout.head_visibility(2))) == 2


def test_trading_needs_as_many_heads_as_the_rank():
    model = member("gradient descent").model
    assert traded(model).cfg.n_heads == 3 * 2 and merged(traded(traded(model))).cfg.n_heads == 1


@pytest.mark.parametrize("change", [rotation, rescaled])
def test_a_change_of_basis_keeps_the_coordinates(change):
    plain = member("heavy ball")
    hidden = replace(plain, model=change(plain.model, 5))
    layouts = plain.model.layout, hidden.model.layout
    first, second = (layout.coordinates(c.tokens(PROMPTS)) for layout, c in zip(layouts, (plain, hidden), strict=True))
    torch.testing.assert_close(first, second)
    assert not torch.allclose(plain.tokens(PROMPTS), hidden.tokens(PROMPTS))
    assert layouts[1].symmetry == layouts[0].symmetry


def test_rescaling_is_one_unit_a_kind_of_column():
    plain = member("heavy ball").model.layout
    layout = rescaled(member("heavy ball").model, 5).layout
    units = {name: layout.columns[name].norm() / plain.columns[name].norm() for name in layout.columns}
    assert units["velocity"] == pytest.approx(units["y"]) and units["constant"] == pytest.approx(1)
    assert len({round(float(units[name]), 6) for name in ("x", "y", "constant")}) == 3


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1e-2])
def test_noise_has_the_size_it_says(size: float):
    model = member("EAGLE").model
    old, new = weights_of(model), weights_of(noisy(model, 1, size))
    for name, weight in old.items():
        for before, after in zip(weight, new[name], strict=True):
            assert (after - before).norm() / before.norm() == pytest.approx(size, rel=0.4)


def test_noise_comes_before_the_disguise():
    plain = member("EAGLE")
    hidden = replace(plain, model=disguised(plain.model, 2, noise=1e-3))
    spoilt = replace(plain, model=noisy(plain.model, 2, 1e-3))
    torch.testing.assert_close(hidden.predict(PROMPTS), spoilt.predict(PROMPTS), rtol=1e-8, atol=1e-9)
    assert not torch.allclose(hidden.predict(PROMPTS), plain.predict(PROMPTS), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-7), (torch.bfloat16, 1e-2)])
def test_rounding_is_rounding(dtype: torch.dtype, size: float):
    model = rotation(member("EAGLE").model, 1)
    old, new = weights_of(model), weights_of(rounded(model, dtype))
    for name, weight in old.items():
        assert 0 < (new[name] - weight).norm() <= size * weight.norm()
        assert torch.equal(new[name].to(dtype).double(), new[name])


def test_scale_by_head_width_survives_new_heads():
    cfg = TransformerConfig(2, 2, 5, 3, kernel=replace(member("EAGLE").model.cfg.kernel, scale="sqrt_d_head"))
    model = HookedTransformer(cfg, BlockLayout.standard(x=3, y=2, n_query=2)).double()
    for change in (merged, mixed, traded):
        torch.testing.assert_close(change(model, 1).predict(PROMPTS.tokens), model.predict(PROMPTS.tokens))


def test_models_that_cannot_be_disguised_are_refused():
    layout = BlockLayout.standard(x=3, y=2)
    biased = HookedTransformer(TransformerConfig(1, 1, 5, 5, use_biases=True), layout)
    with pytest.raises(ValueError, match="attention weights only"):
        split(biased, 0)
    softmax = functional_gradient_descent(PromptShape(3, 2), "exp", [0.1]).model
    with pytest.raises(ValueError, match="linear kernel only"):
        mixed(softmax, 0)
