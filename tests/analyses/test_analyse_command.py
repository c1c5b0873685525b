"""`python -m analyses.analyse_model` on small files written here, and its numbers by other roads."""

import json
from dataclasses import replace

import pytest
import torch

from analyses.analyse_model import Config, main, run
from analyses.model_against_descent import stand
from interp.layout import BlockLayout, Visibility
from models import checkpoints
from models.config import TransformerConfig
from models.constructions.weights import linear_model
from models.foreign import TokenForm
from models.foreign.tokens import CODED, positional_code
from models.prompts import UniformRegression
from models.transformer import HookedTransformer

D, N, GAMMA = 3, 6, 1.2
TASK = {"family": "UniformRegression", "n": N, "d": D}
SMALL = {"prompts": 512, "searched": 256, "certified": 16, "linearised": 6, "batch": 64}


@pytest.fixture
def coded(tmp_path):
    """A gradient step that is answered, negated, in the last positional column, and stated to be in y."""
    layout = BlockLayout.standard(x=D, y=1, position=2)
    Q, V = torch.zeros(2, 1, 2, D + 3, D + 3, dtype=torch.float64)
    Q[:, 0, :D, :D], V[:, 0, D, -1] = torch.eye(D), -GAMMA
    code = positional_code(N, 2)[:, 1]
    Q[:, 1, D + 2, D + 2], V[:, 1, D + 2, -1] = 1.0, -1 / code.square().sum()  # clears that column of its own code
    model = linear_model(Q, V, layout)
    return str(checkpoints.save(model, tmp_path, "coded", {"task": TASK, "tokens": TokenForm(CODED, 2).to_dict()}))


@pytest.fixture
def normed(tmp_path):
    layout = BlockLayout.standard(x=D, y=1, visibility=Visibility("causal", "causal"))
    cfg = TransformerConfig(2, 1, D + 1, D + 1, normalization_type="LN", post_norm=True, d_out=1, init_std=0.4)
    return str(checkpoints.save(HookedTransformer(cfg, layout).double(), tmp_path, "normed", {"task": TASK}))


def test_a_model_that_answers_elsewhere_is_read_there_and_unrolled(coded):
    found = run(Config(coded, **SMALL))
    assert found.readout.clear and found.readout.targets[0].best.name == "position[1]" and found.readout.sign == -1
    assert found.taken.model.layout.readout == "answer" and found.certified and found.exact_error < 1e-12
    assert found.standing.gradient.step == pytest.approx(GAMMA, rel=1e-6)
    assert found.terms.share(row="x", moment=("x", "y")) == pytest.approx(1, abs=1e-6)
    text = str(found)
    for part in (
        "position[1]",
        "from here on",
        "cross-terms with answer, position",
        "tuned gradient step",
        "certified",
    ):
        assert part in text


def test_the_loss_is_the_mean_over_fresh_prompts_and_batches_are_of_consecutive_ones():
    family = UniformRegression(n=N, d=D)
    found = stand(lambda p: 0.5 * p.target, family, 300, 1, 5, batch=100, recorded=1e6).loss
    squared = (0.5 * family.sample(300, seed=5 * 10_007).target).square().flatten()
    assert found.mse == pytest.approx(squared.mean().item(), rel=1e-12)
    assert (found.lowest, found.highest) == pytest.approx(
        tuple(f(squared[i : i + 100].mean().item() for i in (0, 100, 200)) for f in (min, max))
    )
    assert "OUTSIDE" in str(found)
    alone = stand(lambda p: 0.5 * p.target, family, 150, 1, 5, batch=100, recorded=1e6).loss
    assert alone.inside is None and "OUTSIDE" not in str(alone) and "one batch" in str(alone)


def test_the_rival_is_the_best_step_on_other_prompts_and_the_verdict_follows():
    family = UniformRegression(n=N, d=D)
    perfect = stand(lambda p: p.target, family, 2000, 2, 0, batch=500, recorded=0.0, half=True)
    assert [rival.verdict for rival in perfect.rivals] == ["loses to", "loses to"]
    assert perfect.loss.inside and perfect.loss.mse == 0 and perfect.rivals[1].mse < perfect.rivals[0].mse
    assert perfect.rivals[0].nearer == 0
    zero = stand(lambda p: 1e-9 * p.target, family, 2000, 1, 0)
    assert zero.rivals[0].verdict == "beats"
    fitted = family.sample(1024, seed=1 * 10_007)
    direction = fitted.B @ fitted.A.mT @ fitted.C
    step = (direction * fitted.target).sum() / direction.square().sum()
    assert zero.rivals[0].coefficients[0] == pytest.approx(step.item(), rel=1e-10)
    same = stand(lambda p: step * (p.B @ p.A.mT @ p.C), family, 2000, 1, 0)
    assert same.rivals[0].verdict == "ties with" and same.gradient.share == pytest.approx(1)


def test_a_model_with_norms_is_linearised_and_gets_no_exact_name(normed, capsys):
    options = ["--prompts", "256", "--linearised", "6", "--batch", "64", "--format", "json"]
    assert main([normed, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"] is None and found["linearisation"]["exact"] is False
    assert found["linearisation"]["freezing_error"]["own"] < 1e-10 < found["linearisation"]["freezing_error"]["other"]
    assert len(found["rivals"]) == 2
    assert main([normed, *options[:-2]]) == 0
    text = capsys.readouterr().out
    assert "no exact rule" in text and "linearisation, no algorithm and not exact" in text and "frozen" in text


def turned_stream(tmp_path) -> str:
    """A model of x and y whose columns are mixed by a rotation, which plain tokens would miss."""
    layout = BlockLayout.standard(x=D, y=1)
    turn = torch.linalg.qr(torch.randn(D + 1, D + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    turned = replace(layout, columns={name: turn @ basis for name, basis in layout.columns.items()})
    size = torch.zeros(1, 1, D + 1, D + 1, dtype=torch.float64)
    return str(checkpoints.save(linear_model(size, size, turned), tmp_path / "t", "turned", {"task": TASK}))


def test_shares_of_several_layers_are_not_called_one_gradient_step():
    one, several = (str(run(Config(name, **SMALL))) for name in ("lsa-1layer", "eagle-depth2"))
    assert "gradient step z_x S_xy:" in one
    assert "gradient step z_x S_xy:" not in several and "z_x S_xy of all layers, each a gradient step on" in several
    assert "the best 2 gradient steps of fixed coefficients" in several


def test_what_is_not_stated_is_asked_for(tmp_path, coded, capsys):
    layout = BlockLayout.standard(x=D, y=1, position=2)
    size = torch.zeros(1, 1, D + 3, D + 3, dtype=torch.float64)
    nameless = str(checkpoints.save(linear_model(size, size, layout), tmp_path / "b", "nameless"))
    for arguments, reason in [
        ([nameless], "states no task"),
        ([nameless, "--task", "UniformRegression"], "how prompts become tokens is not known"),
        ([coded, "--task", "Regression"], "unknown task"),
        ([coded, "--task", "UniformRegression,n=8"], "give its name alone, and the rows with --rows"),
        ([coded, "--task", "HaarNystrom", "--prompts", "3"], "at least 16"),
        ([str(tmp_path / "absent.pkl")], "there is no file"),
        ([coded, "--rows", "9"], "--rows are the context rows of --task"),
        ([coded, "--layout", "x=3,y=1,position=2"], "--layout is for foreign files"),
        (["eagle-depth1", "--loader", "haiku"], "--loader is for foreign files"),
        ([turned_stream(tmp_path)], "how prompts become tokens is not known"),
    ]:
        assert main(arguments) == 2
        assert reason in capsys.readouterr().err
