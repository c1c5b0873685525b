"""Checkpoints that other people published: each is read, and the loss recorded with it is met on fresh prompts."""

import pytest

from models import foreign
from models.foreign import TokenForm
from models.foreign.tokens import CODED
from models.prompts import StandardRegression, UniformRegression
from tests.models.foreign.published import published

WHERE = "x=10,y=1,position=5,answer=1,readout=answer,sign=-1"


def test_the_positional_model_has_its_recorded_loss():
    model = foreign.load(published("lsa_1layer_posenc.pkl"), layout=WHERE)
    assert model.form == TokenForm(CODED, 6) and model.model.cfg.is_linear_attention
    prompts = UniformRegression(n=10, d=10).sample(60_000, seed=1)
    half_error = (model.predict(prompts) - prompts.target).square() / 2
    assert half_error.mean().item() == pytest.approx(0.323, abs=0.006)
    assert model.parity is not None and model.parity.error < 1e-12


def test_the_label_column_of_the_positional_model_is_no_answer():
    model = foreign.load(published("lsa_1layer_posenc.pkl"), layout="x=10,y=1,position=6")
    prompts = UniformRegression(n=10, d=10).sample(4_000, seed=1)
    left = (model.predict(prompts) - prompts.target).square().mean() / prompts.target.square().mean()
    assert 0.95 < left.item() < 1


@pytest.mark.parametrize(("layers", "recorded"), [(1, 9.70), (2, 5.79)])
def test_the_layer_norm_models_have_their_recorded_losses(layers: int, recorded: float):
    model = foreign.load(published(f"lsa_{layers}layer_layernorm.pt"))
    assert model.parity is not None and model.parity.error < 1e-12
    assert model.model.cfg.n_layers == layers and model.model.cfg.post_norm
    prompts = StandardRegression(n=41, d=20).sample(5_000, seed=0)
    error = (model.predict(prompts) - prompts.target).square()
    assert error.mean().item() == pytest.approx(recorded, abs=5 * error.std().item() / 5_000**0.5)
