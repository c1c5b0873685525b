"""Bare matrices come back as the same model, in a process that knows nothing else, and say nothing else."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from interp.layout import BlockLayout
from models.config import TransformerConfig
from models.constructions import CONSTRUCTIONS, bare
from models.constructions.disguises import disguised
from models.prompts import LogUniformSpectrum
from models.transformer import HookedTransformer

PROMPTS = LogUniformSpectrum(n=12, d=3, n_query=2, d_out=2, kappa=5).sample(3, seed=0)


@pytest.mark.parametrize("family", CONSTRUCTIONS)
def test_round_trip(family: str, tmp_path):
    construction = CONSTRUCTIONS[family](1, 3, 2, 12, 3, 2)
    model = disguised(construction.model, 4)
    bare.save(model, tmp_path / "model")
    again = bare.load(tmp_path / "model")
    tokens = construction.embed(PROMPTS, again.layout)
    assert torch.equal(again.predict(tokens), model.predict(tokens))
    assert again.layout == model.layout and again.cfg.kernel == model.cfg.kernel


def test_file_holds_matrices_kernel_and_layout_only(tmp_path):
    bare.save(CONSTRUCTIONS["EAGLE"](1, 3, 2, 12, 3, 2).model, tmp_path / "0")
    with np.load(tmp_path / "0", allow_pickle=False) as file:
        assert set(file) == {"about", "Q", "K", "V", "O"}
        assert file["Q"].shape == file["O"].shape == (3, 1, 5, 5)
    script = "import sys; from models.constructions import bare; print(bare.load(sys.argv[1]).layout.widths)"
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "0")], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "{'x': 3, 'y': 2}"


def test_models_with_more_than_matrices_are_refused(tmp_path):
    model = HookedTransformer(TransformerConfig(1, 1, 5, 5, use_biases=True), BlockLayout.standard(x=3, y=2))
    with pytest.raises(ValueError, match="attention weights only"):
        bare.save(model, tmp_path / "0")


def spoilt(**changes) -> dict[str, np.ndarray]:
    arrays = {"about": np.zeros(2, dtype=np.uint8), **{letter: np.zeros((1, 1, 5, 5)) for letter in "QKVO"}}
    return {**arrays, **changes}


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", spoilt(), {"Q": np.zeros(3)}, "nan", "shape", "pickle"],
    ids=["empty", "text", "no json", "no layout", "nan", "shape", "pickle"],
)
def test_files_that_hold_no_model_are_refused(content, tmp_path):
    path = tmp_path / "model"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        bare.save(CONSTRUCTIONS["EAGLE"](1, 3, 2, 12, 3, 2).model, path)
        with np.load(path) as file:
            good = dict(file)
        change = {
            "nan": {"V": good["V"] * np.nan},
            "shape": {"O": good["O"][..., :4]},
            "pickle": {"Q": np.array([{}], dtype=object)},
        }
        arrays = {**good, **change[content]} if isinstance(content, str) else content
        with open(path, "wb") as file:
            np.savez(file, **arrays)
    with pytest.raises(ValueError, match="holds no bare matrices of a model"):
        bare.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere"):
        bare.load(tmp_path / "nowhere")
