"""Preconditioned Richardson is named in built softmax networks, and nothing is in broken ones."""

import pytest

from interp.identification import identify
from models.constructions import PromptShape, richardson
from models.prompts import GaussianProcess

PROMPTS = GaussianProcess(n=8, d=1, n_query=2, lengthscale=0.4).sample(12, seed=0)


def built(**options):
    return richardson(PromptShape(1, n_query=2, n=8), 1.5, 0.4, 4, 128, 5.0, **options)


@pytest.mark.parametrize("tracked", [False, True])
def test_the_built_network_is_named_with_its_settings(tracked: bool):
    construction = built(omega=0.8, tracked=tracked)
    found = identify(construction.model, construction.tokens(PROMPTS))
    assert found.verdict == construction.family and found.ranking[0].relative_error < 1e-2
    expected = {"omega": 0.8, "lambda": 1.5, "bandwidth": 0.4, "shift": 1.5}
    assert found.settings == pytest.approx(expected, rel=1e-2)


def test_a_broken_layer_is_unknown_and_named():
    construction = built()
    construction.model.blocks[2].mlp.W_out.data[:, construction.model.layout.slices["alpha"]] *= -1
    found = identify(construction.model, construction.tokens(PROMPTS))
    assert found.verdict == "unknown" and "layer 2: alpha" in found.notes[0]
