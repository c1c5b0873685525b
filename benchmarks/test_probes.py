"""All layers × {w, XᵀY, vec(XᵀX)} × 20 penalties on 20,000 prompts, d = 10, beside a loop of scikit-learn's RidgeCV on
the same activations: time, held-out scores, and peak memory beside caching them all first."""

import ctypes
import gc
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV

from benchmarks.paired import paired_ratio
from interp.hooks import capture
from interp.probes.fitters import RidgeFitter
from interp.probes.readings import Reading
from interp.probes.scores import BLOCKS, BlockSums
from interp.probes.stream import ModelSource, depth_hooks
from interp.probes.study import Study
from models import zoo
from models.prompts import family_from_dict

PROMPTS, HELD_OUT = 20_000, 5_000
TARGETS = ("w", "xty", "hessian")
ALPHAS = np.logspace(-4, 4, 20)
READING = Reading("second-moment")
LIMITS = {"speed": 10.0, "whole": 5.0, "score": 1e-6, "memory": 0.25}
Arrays = dict[str, torch.Tensor]
Scores = dict[tuple[str, str], float]


def subject():
    """A model that ships (d = 10, five columns of labels), and prompts of its task."""
    family = family_from_dict(zoo.metadata("eagle-d10")["task"])
    return zoo.load("eagle-d10").double(), family.sample(PROMPTS, seed=0)


def study(tokens: torch.Tensor, layout) -> Study:
    return Study(tokens, layout, READING, TARGETS, HELD_OUT)


def ours(model, prompts) -> Scores:
    """One pass over the training prompts, one factorisation a layer, one pass over the held-out prompts."""
    source = ModelSource(model, depth_hooks(model), READING, model.layout)
    found = study(prompts.tokens, model.layout).run(source, lambda: RidgeFitter(ALPHAS.tolist(), relative=False))
    return {(hook, target): score.value for (hook, target, _), (_, score) in found.items()}


def cached_first(model, prompts) -> dict[str, torch.Tensor]:
    """The residual stream at every depth, all prompts at once."""
    return capture(model, prompts.tokens, depth_hooks(model))


def loop_of_ridge_cv(model, prompts) -> Scores:
    """Cache everything, reduce to the same features, and fit RidgeCV for each layer and target."""
    return ridge_cv_on(features_of(cached_first(model, prompts), model), truth_of(model, prompts))


def features_of(cache: dict[str, torch.Tensor], model) -> Arrays:
    return {hook: READING.features(z, model.layout)[:, 0] for hook, z in cache.items()}


def truth_of(model, prompts) -> Arrays:
    return study(prompts.tokens, model.layout).truth(torch.arange(PROMPTS))


def ridge_cv_on(features: Arrays, truth: Arrays) -> Scores:
    """A RidgeCV for each layer and target."""
    train, test, scores = slice(0, PROMPTS - HELD_OUT), slice(PROMPTS - HELD_OUT, PROMPTS), {}
    for hook, X in features.items():
        for target, y in truth.items():
            fitted = RidgeCV(ALPHAS).fit(X[train].numpy(), y[train].numpy())
            scores[hook, target] = fitted.score(X[test].numpy(), y[test].numpy())
    return scores


def ours_on(features: Arrays, truth: Arrays) -> Scores:
    """What `Study` does with each layer's features once the model has given them: batches, moments, one factor."""
    y, starts = torch.cat(list(truth.values()), dim=1), np.cumsum([0, *(part.shape[1] for part in truth.values())])
    columns, scores = [slice(*ends) for ends in pairwise(starts.tolist())], {}
    everything = torch.arange(PROMPTS)
    train, test = everything[:-HELD_OUT], everything[-HELD_OUT:]
    for hook, X in features.items():
        fitter = RidgeFitter(ALPHAS.tolist(), relative=False)
        for rows in train.split(256):
            fitter.update(X[rows], y[rows])
        for target, chosen, probe in zip(truth, columns, fitter.fit(columns), strict=True):
            sums = BlockSums(BLOCKS, y[test[:1], chosen][0])
            for block, rows in enumerate(test.tensor_split(BLOCKS)):
                sums.add(block, y[rows, chosen], probe.predict(X[rows]))
            scores[hook, target] = sums.score().value
    return scores


def test_speed_and_scores_beside_ridge_cv(benchmark):
    model, prompts = subject()
    features, truth = features_of(cached_first(model, prompts), model), truth_of(model, prompts)
    reference, scores = ridge_cv_on(features, truth), ours(model, prompts)
    gap = max(abs(found[key] - reference[key]) for found in (scores, ours_on(features, truth)) for key in reference)
    fits = paired_ratio(lambda: ridge_cv_on(features, truth), lambda: ours_on(features, truth), rounds=3)
    whole = paired_ratio(lambda: loop_of_ridge_cv(model, prompts), lambda: ours(model, prompts), rounds=3)
    benchmark.pedantic(ours, args=(model, prompts), rounds=1)
    benchmark.extra_info |= {"fits_over_ours": fits, "with_forward_passes": whole, "largest_difference": gap}
    print(
        f"\n{len(reference)} probes × {len(ALPHAS)} penalties, {PROMPTS} prompts: {fits:.1f} × faster than a loop of "
        f"RidgeCV on the same features, {whole:.1f} × with forward passes on both sides; scores differ by {gap:.1e}"
    )
    assert set(scores) == set(reference) and len(scores) == 15 and gap <= LIMITS["score"]
    assert fits >= LIMITS["speed"] and whole >= LIMITS["whole"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read as Linux counts it")
def test_peak_memory_beside_caching_everything_first(benchmark):
    streamed = benchmark.pedantic(peak_above_prompts, args=("ours",), rounds=1)
    cached, looped = (peak_above_prompts(name) for name in ("cached_first", "loop_of_ridge_cv"))
    benchmark.extra_info |= {"streamed_over_cached": streamed / cached, "streamed_over_loop": streamed / looped}
    print(
        f"\npeak memory above the prompts: {streamed:.0f} MB streamed, {cached:.0f} MB for the cached activations "
        f"alone ({streamed / cached:.3f}), {looped:.0f} MB for the loop of RidgeCV ({streamed / looped:.3f})"
    )
    assert streamed <= LIMITS["memory"] * cached


def peak_above_prompts(function: str) -> float:
    """Megabytes by which a function raises the resident memory of a fresh process that holds model and prompts."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "benchmarks.test_probes", function]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main(function: str) -> None:
    """Warm the libraries up on a few prompts, forget the peak so far, and measure the function on all prompts."""
    model, prompts = subject()
    few = Study(prompts.tokens[:600], model.layout, READING, TARGETS, 100, batch=32)
    source = ModelSource(model, depth_hooks(model), READING, model.layout)
    few.run(source, lambda: RidgeFitter(ALPHAS.tolist(), relative=False))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = status("VmRSS")
    globals()[function](model, prompts)
    print((status("VmHWM") - before) / 1024)


def status(field: str) -> int:
    """A size of this process in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
