"""Decoys are outside every family and say where; members by mistake are inside the larger one."""

import pytest
import torch

from models.constructions import CONSTRUCTIONS, PromptShape, chebyshev_nodes, eagle
from models.constructions.decoys import DECOYS
from models.constructions.draws import Chance, distance_to_nodes
from models.constructions.heads import weights_of
from models.constructions.mistakes import MISTAKES, growth, is_clear
from models.prompts import LogUniformSpectrum
from models.prompts.value import Prompts
from tests.models.constructions.references import REFERENCES

SIZES = {"d": 3, "d_out": 2, "n": 12, "layers": 4, "n_query": 2}
SEEDS = range(12)


def prompts(seed: int = 0) -> Prompts:
    return LogUniformSpectrum(n=12, d=3, n_query=2, d_out=2, kappa=5).sample(3, seed=seed)


@pytest.mark.parametrize("name", DECOYS)
def test_decoys_are_unknown_finite_and_repeat(name: str):
    for seed in SEEDS:
        decoy, again = DECOYS[name](seed, **SIZES), DECOYS[name](seed, **SIZES)
        assert decoy.family == "unknown" and decoy.model.dtype == torch.float64
        assert decoy.predict(prompts()).abs().max() < 1e3
        assert torch.equal(decoy.model.W_Q, again.model.W_Q) and torch.equal(decoy.model.W_V, again.model.W_V)
        layer = decoy.settings["layer"]
        assert layer is None or 0 <= layer < SIZES["layers"]


@pytest.mark.parametrize("name", ["wrong sign of η", "wrong sign of γ"])
def test_one_sign_is_wrong_in_the_layer_that_is_named(name: str):
    letter = {"η": "eta", "γ": "gamma"}[name[-1]]
    right = {"eta": -1.0, "gamma": 1.0}
    for seed in SEEDS:
        decoy = DECOYS[name](seed, **SIZES)
        wrong = [
            (key, layer)
            for key, sign in right.items()
            for layer, value in enumerate(decoy.settings[key])
            if value * sign <= 0
        ]
        assert wrong == [(letter, decoy.settings["layer"])]
        read = {"eta": lambda V: V[0, 0], "gamma": lambda V: -V[-1, -1]}[letter]
        weights = [read(block.attn.W_V[0]).item() for block in decoy.model.blocks]
        assert weights == pytest.approx(decoy.settings[letter])
        follows = REFERENCES["scheduled EAGLE"]
        A, B, C = prompts().A, prompts().B, prompts().C
        settings = {**decoy.settings, "scale": decoy.model.cfg.kernel.scale}
        torch.testing.assert_close(decoy.predict(prompts()), follows(settings, A, B, C, 4))
    assert letter == "gamma" or all(DECOYS[name](seed, **SIZES).settings["layer"] < 3 for seed in range(40))


@pytest.mark.parametrize(("name", "weight"), [("reversed layer", "W_V"), ("corrupted layer", "W_Q")])
def test_one_layer_of_a_member_is_spoilt_and_it_shows(name: str, weight: str):
    seen = set()
    for seed in SEEDS:
        decoy = DECOYS[name](seed, **SIZES)
        member = CONSTRUCTIONS[decoy.settings["of"]](decoy.settings["seed"], **SIZES)
        old, new = weights_of(member.model), weights_of(decoy.model)
        size = (new[weight] - old[weight]).flatten(1).norm(dim=1) / old[weight].flatten(1).norm(dim=1)
        assert (size > 0).nonzero().flatten().tolist() == [decoy.settings["layer"]]
        assert size.max() >= 0.3 - 1e-9
        gap = (decoy.predict(prompts()) - member.predict(prompts())).norm() / member.predict(prompts()).norm()
        assert gap > 0.01
        seen.add(decoy.settings["of"])
    assert len(seen) > 3


def test_random_words_commute_with_rotations_and_random_weights_do_not():
    x, y = (torch.linalg.qr(torch.randn(k, k, generator=torch.Generator().manual_seed(k)).double())[0] for k in (3, 2))
    basis, plain = torch.block_diag(x, y), prompts()
    turned = Prompts(plain.tokens @ basis, plain.target @ y)
    for seed in SEEDS:
        words = DECOYS["random words"](seed, **SIZES)
        torch.testing.assert_close(words.predict(turned), words.predict(plain) @ y)
        weights = DECOYS["random weights"](seed, **SIZES)
        assert (weights.predict(turned) - weights.predict(plain) @ y).abs().max() > 1e-6


@pytest.mark.parametrize("name", ["memorised answer", "memorised weights"])
def test_memories_ignore_the_context(name: str):
    for seed in SEEDS:
        decoy, first, other = DECOYS[name](seed, **SIZES), prompts(1), prompts(2)
        tokens = other.tokens.clone()
        tokens[:, -2:] = first.tokens[:, -2:]
        mixed = Prompts(tokens, first.target)
        torch.testing.assert_close(decoy.predict(mixed), decoy.predict(first))
        known = {"memorised answer": "answer", "memorised weights": "weights"}[name]
        memory = torch.tensor(decoy.settings[known], dtype=torch.float64)
        expected = first.B @ memory if known == "weights" else memory.expand(3, 2, 2)
        torch.testing.assert_close(decoy.predict(first), expected)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_members_of_the_larger_family(name: str):
    for seed in SEEDS:
        mistake = MISTAKES[name](seed, **SIZES)
        larger = "scheduled EAGLE" if "EAGLE" in name or "GD++" in name else "scheduled GD"
        assert mistake.family == larger and mistake.settings["of"][0] == name.split(",")[0]
        found, problem = mistake.predict(prompts()), prompts()
        assert found.abs().max() < 20 * problem.C.abs().max()
        expected = REFERENCES[larger](mistake.settings, problem.A, problem.B, problem.C, 4)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        again = MISTAKES[name](seed, **SIZES)
        assert again.settings == mistake.settings != MISTAKES[name](seed + 100, **SIZES).settings


@pytest.mark.parametrize("name", [name for name in MISTAKES if "Chebyshev" in name or name.startswith("gradient")])
def test_changed_descent_is_at_no_nodes(name: str):
    assert all(distance_to_nodes(MISTAKES[name](seed, **SIZES).settings["gamma"]) > 0.05 for seed in SEEDS)


def test_what_counts_as_clear():
    shape, zeros = PromptShape(3, 2, 2), [0.0] * 4
    assert not is_clear({"eta": zeros, "gamma": [0.7] * 4})
    assert not is_clear({"eta": zeros, "gamma": chebyshev_nodes(shape, (0.1, 1), 4, [3, 1, 0, 2]).settings["gamma"]})
    geometric = [0.5 * 2.0**layer for layer in range(4)]
    assert not is_clear({"eta": [-step for step in geometric], "gamma": geometric})
    assert not is_clear({"eta": [-0.3, -0.6, -1.2, -9.0], "gamma": geometric})  # the last η does nothing
    assert is_clear({"eta": [-0.3, -0.3, -0.3, -0.3], "gamma": geometric})
    assert is_clear({"eta": [-step for step in geometric], "gamma": [0.5, 1.0, 2.0, 2.0]})
    assert eagle(shape, -0.5, 1.0, 3).settings["norms"][0] == 1.0


def test_growth_is_that_of_the_worst_eigenvalue():
    assert growth({"eta": [0.0, 0.0], "gamma": [0.5, 1.0]}, domain=1.0) == 1
    assert growth({"eta": [0.0, 0.0], "gamma": [3.0, 3.0]}, domain=1.0) == pytest.approx(4)
    assert growth({"eta": [-3.0, 0.0], "gamma": [1.0, 1.0]}, domain=1.0) == pytest.approx(2)
    assert growth({"eta": [0.0, 0.0], "gamma": [3.0, 3.0]}, domain=0.1) == 1


@pytest.mark.parametrize(
    ("draw", "layers", "message"),
    [
        (DECOYS["random words"], 1, "random words needs at least 2 layers"),
        (DECOYS["wrong sign of η"], 1, "a wrong sign of eta needs at least 2 layers"),
        (MISTAKES["GD++, one γ changed"], 2, "at least 3 layers"),
    ],
)
def test_depths_at_which_nothing_would_be_wrong_are_refused(draw, layers: int, message: str):
    with pytest.raises(ValueError, match=message):
        draw(0, 3, layers=layers)


def test_chance_is_seeded():
    first, again = Chance(3), Chance(3)
    assert first.uniforms(0, 1, 3) == again.uniforms(0, 1, 3) and first.permutation(5) == again.permutation(5)
