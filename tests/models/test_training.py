"""Training: it learns, it resumes bit for bit after a kill, it rolls back, it refuses other people's directories."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models import checkpoints, training
from models.evaluation import evaluate
from models.gram import GramState, query_rows
from models.prompts import LogUniformSpectrum
from models.recipe import Recipe
from models.seeds import derived_seed
from models.trainer import DivergedError, Trainer
from models.training import pick_device, snapshot_steps, train
from tests.models.test_transformer_recipe import TINY as SOFTMAX

ROOT = Path(__file__).parents[2]
TINY = Recipe(
    "tiny",
    "A small one.",
    LogUniformSpectrum(n=3, d=2, kappa=2.0),
    n_layers=2,
    steps=250,
    rate=0.05,
    batch=16,
    warmup=5,
)
CPU = torch.device("cpu")


def run(recipe: Recipe, directory: Path, **options):
    return train(recipe, directory, device="cpu", progress=False, **options)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return checkpoints.load(directory).state_dict()


def assert_same_weights(first: Path, second: Path) -> None:
    left, right = weights(first), weights(second)
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_training_learns_and_stores_its_evaluation(tmp_path):
    trained = run(TINY, tmp_path / "run", seed=1)
    metrics = trained.metadata["metrics"]
    assert metrics["relative_error"]["median"] < 0.2
    loaded, metadata = checkpoints.load(tmp_path / "run"), checkpoints.read_metadata(tmp_path / "run")
    assert metadata == trained.metadata == json.loads(json.dumps(trained.metadata))
    assert evaluate(loaded, TINY.family, seed=metrics["seed"]).to_dict() == metrics
    assert Recipe.from_dict(metadata["recipe"]) == TINY and metadata["seed"] == 1 and metadata["prior"] == "none"


def test_evaluation_prompts_are_not_training_prompts():
    steps = {derived_seed(0, 0, step, 0) for step in range(1000)}
    assert derived_seed(0, 1) not in steps and len(steps) == 1000


def test_same_seed_same_weights_other_seed_others(tmp_path):
    short = replace(TINY, steps=20)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(short, tmp_path / name, seed=seed)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert not torch.equal(weights(tmp_path / "a")["blocks.0.attn.W_Q"], weights(tmp_path / "c")["blocks.0.attn.W_Q"])


KILLED = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from models import training
from models.recipes import recipe_from_dict
from models.trainer import Trainer
import json

advance = Trainer.advance
def until_killed(self):
    if self.step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(self)
Trainer.advance = until_killed
training.SAVE_SECONDS = 0.02
training.train(recipe_from_dict(json.loads(sys.argv[3])), sys.argv[1], device="cpu", progress=False)
"""


@pytest.mark.parametrize(("start", "rate", "killed_at"), [(TINY, 0.05, 77), (TINY, 1e4, 30), (SOFTMAX, 0.01, 77)])
def test_resumed_after_kill_9_the_weights_are_bitwise_the_same(tmp_path, start, rate, killed_at):
    """The second rate is so high that the run has rolled back before it is killed."""
    recipe = replace(start, rate=rate, steps=120)
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(killed_at), json.dumps(recipe.to_dict())]
    assert subprocess.run(arguments, cwd=ROOT).returncode == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("*.safetensors"))
    resumed = run(recipe, tmp_path / "killed", resume=True)
    whole = run(recipe, tmp_path / "whole")
    assert_same_weights(tmp_path / "killed", tmp_path / "whole")
    assert resumed.metadata["history"] == whole.metadata["history"]
    assert resumed.metadata["training"]["rollbacks"] == whole.metadata["training"]["rollbacks"]
    assert (resumed.metadata["training"]["rollbacks"] > 0) == (rate > 1)


def test_an_interrupted_run_keeps_its_state(tmp_path):
    def interrupt(step, model, loss):
        if step > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, tmp_path / "run", callbacks=[interrupt])
    run(TINY, tmp_path / "run", resume=True)
    run(TINY, tmp_path / "whole")
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


def test_resuming_a_finished_run_gives_its_model(tmp_path):
    first = run(replace(TINY, steps=5), tmp_path / "run")
    again = run(replace(TINY, steps=5), tmp_path / "run", resume=True)
    assert again.metadata == first.metadata and again.path == first.path


def test_a_non_finite_step_goes_back_and_halves_the_rate():
    trainer = Trainer(TINY, 0, CPU)
    for _ in range(130):
        trainer.advance()
    good = {name: tensor.clone() for name, tensor in trainer.good.items()}
    rate = trainer.rate()
    with torch.no_grad():
        trainer.parameters.Q.matrix.fill_(math.inf)
    assert math.isnan(trainer.advance())
    assert trainer.step == 100 and trainer.rollbacks == 1
    assert torch.equal(trainer.parameters.Q.matrix, good["parameter.Q.matrix"])
    trainer.step = 130
    assert trainer.rate() == pytest.approx(rate / 2)


def test_a_run_that_never_gets_finite_is_an_error(tmp_path):
    with pytest.raises(DivergedError, match=r"31 non-finite steps.*lower its rate or its init_std"):
        run(replace(TINY, init_std=1e20), tmp_path)


def test_the_step_minimises_the_error_of_the_token_forward():
    """The loss of the first step, from the token forward of the initial model on the same prompts."""
    trainer = Trainer(TINY, 0, CPU)
    prompts = TINY.training_family.sample(TINY.batch, seed=derived_seed(0, 0, 0, 0))
    state = GramState.of(prompts.tokens, prompts.n_query)
    layout = replace(TINY.layout, n_query=prompts.n_query)
    model = trainer.parameters.to_model(layout).double()
    torch.testing.assert_close(
        layout.predict(query_rows(state, trainer.parameters.double().layers(), TINY.routing)),
        model.predict(prompts.tokens),
        rtol=1e-5,
        atol=1e-6,
    )
    trainer = Trainer(TINY, 0, CPU)
    assert trainer.advance() == pytest.approx(TINY.loss(model.predict(prompts.tokens), prompts.target).item(), rel=1e-4)


def test_double_precision_on_request(tmp_path):
    """The same run up to rounding; what is saved is in float32 either way."""
    single, double = (replace(TINY, steps=10, precision=precision) for precision in ("float32", "float64"))
    assert Trainer(double, 0, CPU).parameters.Q.matrix.dtype == torch.float64
    run(single, tmp_path / "single")
    run(double, tmp_path / "double")
    left, right = weights(tmp_path / "single"), weights(tmp_path / "double")
    for layer in range(2):
        products = [w[f"blocks.{layer}.attn.W_V"] @ w[f"blocks.{layer}.attn.W_O"] for w in (left, right)]
        torch.testing.assert_close(*products, rtol=1e-3, atol=1e-5)


def test_warm_up_then_cosine():
    trainer, rates = Trainer(replace(TINY, steps=1000, warmup=10, final_rate=0.01), 0, CPU), []
    for step in range(1001):
        trainer.step = step
        rates.append(trainer.rate())
    assert rates[0] == pytest.approx(0.005) and max(rates) == pytest.approx(0.05, rel=1e-3)
    assert rates[10:] == sorted(rates[10:], reverse=True) and rates[-1] == pytest.approx(0.0005)


def test_callbacks_see_the_model_and_their_numbers_are_kept(tmp_path):
    seen = []

    def distance(step, model, loss):
        seen.append((step, model.cfg.n_layers, loss))
        return {"distance": float(step)}

    trained = run(replace(TINY, steps=40), tmp_path, callbacks=[distance])
    history = trained.metadata["history"]
    assert [entry["step"] for entry in history] == snapshot_steps(40) == [step for step, _, _ in seen]
    assert all(entry["distance"] == entry["step"] for entry in history) and seen[-1][1] == 2
    assert "loss" not in history[0] and history[-1]["loss"] == seen[-1][2]


def test_what_a_callback_cannot_measure_is_none(tmp_path):
    trained = run(replace(TINY, steps=2), tmp_path, callbacks=[lambda step, model, loss: {"distance": math.inf}, _mute])
    assert all(entry["distance"] is None for entry in trained.metadata["history"])


def _mute(step, model, loss):
    return None


def test_snapshots_are_models(tmp_path):
    trained = run(replace(TINY, steps=30), tmp_path)
    snapshots = tmp_path / "run" / "snapshots"
    assert checkpoints.names(snapshots) == [f"step-{step:06d}" for step in snapshot_steps(30)]
    last = checkpoints.load(snapshots / "step-000030").state_dict()
    assert all(torch.equal(last[name], tensor) for name, tensor in trained.model.state_dict().items())
    assert snapshot_steps(30)[0] == 0 and snapshot_steps(30)[-1] == 30


def test_the_bar_shows_the_loss_and_the_callbacks_on_standard_error(tmp_path, capsys):
    train(replace(TINY, steps=23), tmp_path, device="cpu", callbacks=[lambda step, model, loss: {"distance": 0.25}])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "tiny, seed 0" in captured.err and "23/23" in captured.err
    assert "loss" in captured.err and "distance 0.25" in captured.err


def test_devices():
    assert pick_device("cpu") == CPU and pick_device("auto").type in ("cuda", "mps", "cpu")
    with pytest.raises(ValueError, match="the device 'abacus' cannot be used here"):
        pick_device("abacus")


def test_a_directory_with_another_run_is_refused(tmp_path):
    run(replace(TINY, steps=3), tmp_path / "run")
    with pytest.raises(ValueError, match=r"already holds a run .recipe 'tiny', seed 0.; resume it or give another"):
        run(replace(TINY, steps=3), tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run of recipe 'tiny', seed 0, not of this recipe 'tiny' with seed 1"):
        run(replace(TINY, steps=3), tmp_path / "run", seed=1, resume=True)
    with pytest.raises(ValueError, match="give the same recipe"):
        run(replace(TINY, steps=4), tmp_path / "run", resume=True)


def test_other_directories_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is no empty directory; give a training run one of its own"):
        run(TINY, tmp_path)
    with pytest.raises(ValueError, match="is no empty directory"):
        run(TINY, tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="holds no run to resume"):
        run(TINY, tmp_path / "new", resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_state_is_one_sentence(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(TINY, tmp_path, callbacks=[_interrupt])
    (tmp_path / "run" / "state.safetensors").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"state.safetensors is damaged"):
        run(TINY, tmp_path, resume=True)


def _interrupt(step, model, loss):
    raise KeyboardInterrupt


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(path, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot write .*run.json: No space left on device"):
        run(TINY, tmp_path / "new")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_unknown_recipe_lists_the_known(tmp_path):
    with pytest.raises(ValueError, match="unknown recipe 'eagle-d11'; known: eagle, "):
        train("eagle-d11", tmp_path)


def test_the_state_is_written_by_the_clock(tmp_path, monkeypatch):
    writes = []
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(
        training.RunDirectory, "write_state", lambda self, tensors, notes: writes.append(notes["seconds"])
    )
    run(replace(TINY, steps=10), tmp_path)
    assert len(writes) == 11 and training.SAVE_SECONDS == 0.0 and writes == sorted(writes)
