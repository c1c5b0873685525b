import json
from pathlib import Path

import numpy as np
import pytest

from analyses import identify_bare, identify_benchmark
from analyses.cli import app
from analyses.identify_benchmark import Config, run, settings_error
from analyses.terminal import run_app
from models import checkpoints
from models.prompts import LogUniformSpectrum
from tests.builders import random_model

FAMILY = LogUniformSpectrum(n=10, d=5, n_query=2, d_out=3, kappa=10.0)


def test_identify_as_text_and_json(capsys: pytest.CaptureFixture[str]):
    assert run_app(app, ["identify", "eagle-d10", "--prompts", "64", "--format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["verdict"] == "scheduled EAGLE" and values["margin"] > 0
    assert {"family", "relative_error", "settings"} <= set(values["ranking"][0])
    assert values["conditioning"][0] == pytest.approx(4 / 3, rel=0.05)
    assert run_app(app, ["identify", "eagle-d10", "--prompts", "64"]) == 0
    text = capsys.readouterr().out
    assert "−T₃/3 is 4/3" in text and "sits at −T₃/3" in text and "the words leave out at most" in text
    assert run_app(app, ["identify", "eagle-deep", "--prompts", "64"]) == 0
    assert "another basin" in capsys.readouterr().out


def test_unknown_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    checkpoints.save(random_model(5, 3, 3, 2, seed=0), tmp_path, "mine", {"task": FAMILY.to_dict()})
    assert run_app(app, ["identify", str(tmp_path), "--prompts", "16"]) == 1
    assert "unknown" in capsys.readouterr().out
    assert run_app(app, ["identify", str(tmp_path), "--prompts", "0"]) == 2


def test_a_small_benchmark_has_no_false_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure = tmp_path / "confusion.png"
    arguments = ["--members", "1", "--decoys", "1", "--mistakes", "1", "--seed", "5", "--format", "json"]
    assert identify_benchmark.main([*arguments, "--figure", str(figure)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["decoys_unknown"] == [9, 9] and values["named_up_to_1e-3"] == [12, 12]
    assert values["false_names"] == 0 and values["spoilt_layers_named"] == [4, 4]
    assert values["mistakes_named_as_the_larger_family"] == [8, 8]
    assert values["largest_error_of_exact_settings"] < 1e-6 and values["exact_settings_compared"] == 12
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_bare_matrices_are_answered_from_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert identify_bare.main([str(tmp_path)]) == 2
    assert "no npz files" in capsys.readouterr().err
    np.savez(tmp_path / "a.npz", Q=np.zeros(3))
    np.save(tmp_path / "a.npy", np.zeros((1, 2, 3)))
    assert identify_bare.main([str(tmp_path)]) == 2
    assert "holds no bare matrices" in capsys.readouterr().err


def test_errors_of_settings():
    assert settings_error({"gamma": [1.0, 2.0], "name": "a"}, {"gamma": [1.0, 2.2, 9.0], "name": "a"}) == pytest.approx(
        0.1
    )
    assert settings_error({"name": "a"}, {"name": "b"}) == 1.0
    with pytest.raises(ValueError, match="none of the settings"):
        settings_error({"gamma": 1.0}, {})
    with pytest.raises(ValueError, match="members=0"):
        run(Config(members=0))
