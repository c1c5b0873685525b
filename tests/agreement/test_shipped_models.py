"""What is claimed of the models that ship: the roads meet, and the certificate says so."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from interp import certify, closed_form, unroll
from interp.stats import relative_errors
from models import checkpoints, zoo
from models.constructions.disguises import DISGUISES, rotated

NAME = "eagle-d10"
EAGLE_WORDS = {"z_x S_xx → x", "z_x S_xy → y"}
OTHER_FORMS = {"eagle-depth1", "eagle-lowrank", "eagle-distributed", "eagle-distributed-heads", "lsa-1layer"}
"""One layer (gradient descent), a projection in the place of the identity, several machines: no EAGLE closed form."""
LINEAR = [name for name in zoo.names() if zoo.load(name).cfg.is_linear_attention]
TWO_WORDS = [name for name in LINEAR if name not in OTHER_FORMS]
BLOWN_UP = 10.0
"""Relative error of the model beyond which a prompt is outside its domain and relative rounding no longer small."""


def digits(rule: object) -> list[dict[str, str]]:
    return [{word: f"{value:.6g}" for word, value in layer.labelled("words").items()} for layer in rule.layers]


def large(rule: object) -> list[dict[str, str]]:
    """Coefficients above the rounding of float32 weights, as they are printed."""
    return [
        {word: f"{value:.6g}" for word, value in layer.labelled("words").items() if abs(value) > 1e-5}
        for layer in rule.layers
    ]


@pytest.mark.parametrize("name", LINEAR)
def test_exact_rule_is_the_forward_pass(name: str):
    model, prompts = zoo.load(name).double(), zoo.prompts(name, 64, seed=11)
    predicted = model.predict(prompts.tokens)
    sane = relative_errors(predicted, prompts.target) < BLOWN_UP
    assert sane.sum() > 60
    assert relative_errors(unroll(model).predict(prompts.tokens, "exact"), predicted)[sane].max() < 1e-10


@pytest.mark.parametrize("name", TWO_WORDS)
def test_closed_form_is_the_two_words(name: str):
    """B w_L of the polynomials against the rule that is run, with only those two words."""
    prompts = zoo.prompts(name, 32, seed=12)
    rule = unroll(zoo.load(name), prompts=zoo.prompts(name, 128, seed=13), core_error=0.1)
    form = closed_form(rule)
    assert form is not None and form.form == "EAGLE"
    two = {str(word) for layer in rule.layers for item in layer.groups for word in item.core}
    assert two == EAGLE_WORDS
    by_hand = prompts.B @ form.implicit_weights(prompts.A, prompts.C)
    sane = relative_errors(by_hand, prompts.target) < 1
    assert sane.sum() > 29
    assert relative_errors(by_hand, rule.predict(prompts.tokens, "core"))[sane].max() < 1e-9


def test_models_of_another_form_have_no_eagle_closed_form():
    found = {name: closed_form(unroll(zoo.load(name))) for name in OTHER_FORMS & set(zoo.names())}
    assert found.pop("eagle-depth1").form == found.pop("lsa-1layer").form == "gradient descent"
    assert found and all(form is None for form in found.values())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sum_over_rank_limited_heads_is_eagle(seed: int):
    model = zoo.seeds("eagle-lowrank-2head")[seed]
    assert (torch.linalg.matrix_rank(model.double().QK.AB) == 3).all()
    rule = unroll(model, prompts=zoo.prompts("eagle-lowrank-2head", 256, seed=21), core_error=0.02)
    levels = certify(rule, model, zoo.prompts("eagle-lowrank-2head", 256, seed=22)).levels
    assert {str(word) for layer in rule.layers for item in layer.groups for word in item.core} == EAGLE_WORDS
    assert min(layer.function_explained for layer in levels["core"].layers) >= 0.99


def test_the_core_of_the_distributed_model():
    model = zoo.load("eagle-distributed")
    rule = unroll(model, prompts=zoo.prompts("eagle-distributed", 256, seed=21), core_error=0.02)
    core = certify(rule, model, zoo.prompts("eagle-distributed", 512, seed=22)).levels["core"]
    assert core.output.median_relative_error <= 0.01
    assert {item.group.roles for layer in rule.layers[:-1] for item in layer.groups} == {("context",), ("query",)}


def test_certificate_of_eagle_d10():
    model = zoo.load(NAME)
    rule = unroll(model, prompts=zoo.prompts(NAME, 512, seed=21))
    certificate = certify(rule, model, zoo.prompts(NAME, 1024, seed=22))
    levels = certificate.levels
    assert levels["exact"].output.max_relative_error <= 1e-10
    assert levels["words"].output.rms_relative_error <= 1e-3
    assert levels["core"].output.rms_relative_error <= 2e-3
    assert all(len(layer.labelled("core")) == 2 for layer in rule.layers[:-1])
    assert min(layer.function_explained for layer in levels["words"].layers) >= 0.999
    assert certificate.task is not None and certificate.task.rms_relative_error < 0.01


@pytest.mark.parametrize("name", DISGUISES)
def test_printed_coefficients_do_not_see_a_disguise(name: str):
    plain = zoo.load(NAME)
    assert large(unroll(DISGUISES[name](plain, 1))) == large(unroll(plain))


def test_printed_coefficients_in_float64_and_in_a_rotated_basis():
    plain = unroll(zoo.load(NAME))
    assert digits(unroll(zoo.load(NAME).double())) == digits(plain)
    noise = torch.randn(15, 15, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    turned = rotated(zoo.load(NAME), torch.linalg.qr(noise)[0])
    assert large(unroll(turned)) == large(plain)


def test_one_gamma_times_1_1_moves_that_coefficient_alone():
    changed, y = zoo.load(NAME).double(), slice(10, 15)
    with torch.no_grad():
        changed.blocks[1].attn.W_O[:, :, y] *= 1.1
    before, after = unroll(zoo.load(NAME)), unroll(changed)
    for index, (first, second) in enumerate(zip(before.layers, after.layers, strict=True)):
        for word, value in first.labelled("words").items():
            factor = 1.1 if index == 1 and word.endswith("y") else 1.0
            assert second.labelled("words")[word] == pytest.approx(factor * value, rel=1e-9, abs=1e-14)
    certificate = certify(after, changed, zoo.prompts(NAME, 64, seed=1))
    assert certificate.levels["exact"].output.max_relative_error <= 1e-10


def test_exact_python_runs_without_torch_after_the_checkpoint_is_gone(tmp_path: Path):
    directory = tmp_path / "checkpoint"
    checkpoints.save(zoo.load(NAME), directory, NAME)
    model = checkpoints.load(directory)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "rule.py").write_text(unroll(model).python("exact"), encoding="utf-8")
    shutil.rmtree(directory)
    family = zoo.family(NAME)
    sizes = {"as trained": family, **{label: edge for label, edge in family.edges().items() if label.startswith("n =")}}
    assert len(sizes) == 2
    for number, (label, chosen) in enumerate(sizes.items()):
        tokens = chosen.sample(100, seed=31 + number).tokens
        np.save(tmp_path / "alone" / "tokens.npy", tokens.numpy())
        code = "import sys; sys.modules['torch'] = None; import numpy, rule; "
        code += "numpy.save('out.npy', rule.predict(numpy.load('tokens.npy')))"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "alone", check=True)
        out = torch.from_numpy(np.load(tmp_path / "alone" / "out.npy"))
        assert relative_errors(out, model.double().predict(tokens)).max() < 1e-10, label
