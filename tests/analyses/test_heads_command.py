import json
from pathlib import Path

import pytest

from analyses.heads_model import main
from interp.kernels import AttentionKernel
from models import checkpoints
from models.prompts import GaussianProcess
from models.transformer import HookedTransformer, TransformerConfig

FAMILY = GaussianProcess(n=6, lengthscale=0.4, lam=0.2)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """An untrained model on Gaussian-process prompts."""
    kernel = AttentionKernel("exp", "sum", "sqrt_d_head")
    cfg = TransformerConfig(2, 1, 6, 6, kernel, False, 8, "gelu", "LN", use_biases=True, d_in=2, d_out=1)
    path = checkpoints.save(HookedTransformer(cfg, FAMILY.layout()), tmp_path, "small", {"task": FAMILY.to_dict()})
    return str(path)


def test_text_and_figure(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure = tmp_path / "heads.png"
    assert main([model, "--prompts", "48", "--figure", str(figure)]) == 0
    captured = capsys.readouterr()
    assert "small: what its heads and MLPs compute" in captured.out and "MLP outputs follow" in captured.out
    assert figure.read_bytes().startswith(b"\x89PNG") and "figure:" in captured.err


def test_json_states_prompts_and_controls(model: str, capsys: pytest.CaptureFixture[str]):
    assert main([model, "--prompts", "48", "--format", "json", "--clustered", "0.6"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["model"] == "small" and values["prompts_of"]["clustered"] == 0.6 and values["lam"] == 0.2
    head = values["heads"][0]
    assert {"scores", "operator", "untrained"} <= set(head) and head["operator"]["mass"] == pytest.approx(1)
    assert len(values["heads"]) == 4 and len(values["mlps"]) == 2
    assert values["decodable"]["label"]["layers"][0]["score"] > 0.99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eagle-d10"], "compares heads with the kernel of a Gaussian process, and the task of eagle-d10 is"),
        (["no-such-model"], "unknown model 'no-such-model'"),
    ],
)
def test_another_task_is_one_sentence_and_exit_code_2(arguments, message, capsys: pytest.CaptureFixture[str]):
    assert main([*arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


def test_bad_sizes_are_exit_code_2(model: str, capsys: pytest.CaptureFixture[str]):
    assert main([model, "--prompts", "8"]) == 2
    assert "give at least 16" in capsys.readouterr().err
    assert main([model, "--clustered", "1.5"]) == 2
    assert "clustered=1.5 is a share" in capsys.readouterr().err
