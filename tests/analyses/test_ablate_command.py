import json
from pathlib import Path

import pytest

from analyses import ablate_model, ablation_alignment, ablation_suite


def ablate(*options: str) -> int:
    return ablate_model.main([*options, "--prompts", "8"])


def test_swaps_exits_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure = tmp_path / "deep" / "a.png"
    options = ["--kernel", "linear", "--layers", "0,2", "--exit", "--figure", str(figure), "--format", "json"]
    assert ablate("eagle-d10", *options) == 0
    values = json.loads(capsys.readouterr().out)["ablation"]
    assert [row["layers"] for row in values["rows"]] == [[0, 2], [0], [2], [0], [1], [2], [3]]
    assert all(row["effects"]["moved"]["value"] < 1e-12 for row in values["rows"][:3])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_word_as_json(capsys: pytest.CaptureFixture[str]):
    assert ablate("eagle-d10", "--word", "conditioning", "--format", "json") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["ablation"] is None and values["word"]["rule_to_descent"] < 1e-10
    assert "diverges" in values["word"]["remark"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "lineer"], "did you mean linear"),
        (["--kernel", "linear", "--layers", "0,9"], "layer 9 is out of range"),
        (["--kernel", "linear", "--heads", "3"], "head 3 is out of range"),
        (["--kernel", "linear", "--layers", ","], "--layers is empty"),
        (["--kernel", "linear", "--layers", "nan"], "whole numbers"),
        (["--head", "nan"], "LAYER.HEAD"),
        (["--mlp"], "no MLPs"),
        (["--word", "x"], "has no word"),
        (["--rescale"], "name a kernel"),
        (["--layers", "0"], "add --kernel"),
        (["--exit", "--mode", "x"], "unknown mode"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(options, message: str, capsys: pytest.CaptureFixture[str]):
    assert ablate("eagle-d10", *options) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


def test_the_suite_writes_rows_as_they_come(tmp_path: Path):
    assert ablation_suite.main(["eagle-depth1", "--out", str(tmp_path), "--device", "cpu", "--prompts", "4"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    values = json.loads((tmp_path / "ablation.json").read_text(encoding="utf-8"))
    assert rows == values["rows"] and len(rows) == 16 + 3 + 3 + 1
    assert (tmp_path / "task-error.png").exists() and (tmp_path / "ablation.txt").exists()


@pytest.fixture
def few_prompts(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"GROUPS": 2, "TRAIN": 16, "TEST": 8, "STEPS": 8}.items():
        monkeypatch.setattr(ablation_alignment, name, value)


def test_the_same_kernel_leaves_the_distances_from_solvers_alone(few_prompts: None, capsys: pytest.CaptureFixture[str]):
    asked = ["--kernel", "softmax", "--kernel", "uniform", "--layers", "1", "--exit", "--alignment", "--prompts", "4"]
    assert ablate_model.main(["gp-softmax", *asked, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["alignment"]["rows"]
    assert [row["what"] for row in rows] == ["softmax", "uniform"]  # an exit has no layers left to compare
    same, other = ([by["mean"] for by in row["change_of_A"].values()] for row in rows)
    assert max(map(abs, same)) < 1e-12 and min(map(abs, other)) > 1e-3
    assert ablate_model.main(["gp-softmax", *asked[:2], *asked[-3:]]) == 0
    assert "preconditioned Nesterov" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eagle-d10", "--head", "0.0", "--alignment"], "no kernel system"),
        (["gp-softmax", "--alignment"], "name some, such as --kernel linear"),
    ],
)
def test_alignment_is_refused_in_a_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert ablate_model.main([*arguments, "--prompts", "4"]) == 2
    out, error = capsys.readouterr()
    assert not out and message in " ".join(error.split()) and error.count("\n") == 1
