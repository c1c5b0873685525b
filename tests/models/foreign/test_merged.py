"""Merged P and Q: the formula of the paper and that of its code, token by token."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models import foreign
from models.foreign import ForeignError, from_merged
from models.prompts import UniformRegression

PROMPTS = UniformRegression(n=7, d=4).sample(5, seed=0)
RNG = np.random.default_rng(2)
P, Q = RNG.standard_normal((2, 3, 2, 5, 5))  # [layer, head, D, D]
P_X, Q_X = RNG.standard_normal((2, 3, 2, 4, 4))


def by_tokens(P: np.ndarray, Q: np.ndarray, convention: str) -> np.ndarray:
    """Token j gets (1/n) Σ_i P z_i (z_iᵀ Q z_j) in the paper, z_jᵀ Q z_i in the code."""
    answers = []
    for z in PROMPTS.tokens.numpy():
        n = len(z) - 1
        for heads_P, heads_Q in zip(P, Q, strict=True):
            new = z.copy()
            for p, q in zip(heads_P, heads_Q, strict=True):
                for j in range(n + 1):
                    for i in range(n):
                        score = z[i] @ q @ z[j] if convention == "paper" else z[j] @ q @ z[i]
                        new[j] += p @ z[i] * score / n
            z = new
        answers.append(-z[-1, -1])
    return np.array(answers)


def completed(W: np.ndarray, corner: float) -> np.ndarray:
    full = np.pad(W, ((0, 0), (0, 0), (0, 1), (0, 1)))
    full[..., -1, -1] = corner
    return full


@pytest.mark.parametrize("convention", ["code", "paper"])
def test_it_is_the_same_function(convention: str):
    expected = by_tokens(P, Q, convention)
    ours = from_merged(P, Q, "x=4,y=1", convention=convention)
    assert np.abs(ours.predict(PROMPTS).flatten().numpy() - expected).max() < 1e-12 * np.abs(expected).max()
    assert ours.layout.sign == -1 and ours.parity is not None and ours.parity.holds


def test_the_conventions_differ():
    assert np.abs(by_tokens(P, Q, "paper") / by_tokens(P, Q, "code") - 1).max() > 0.1


def test_matrices_of_the_inputs_alone_are_completed(tmp_path: Path):
    expected = by_tokens(completed(P_X, 1), completed(Q_X, 0), "code")
    stacked = torch.from_numpy(np.stack([P_X, Q_X], axis=2))
    torch.save({"allparam": stacked}, tmp_path / "theirs.pt")
    np.savez(tmp_path / "theirs.npz", P=P_X, Q=Q_X)
    from_torch, from_npz = foreign.load(tmp_path / "theirs.pt"), foreign.load(tmp_path / "theirs.npz", inputs_only=True)
    for ours in (from_torch, from_npz):
        assert np.abs(ours.predict(PROMPTS).flatten().numpy() - expected).max() < 1e-12 * np.abs(expected).max()
        assert any("completed with a 1 for y in P" in note for note in ours.notes)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"P": P, "Q": Q[..., :4]}, {}, "both are square"),
        ({"P": P, "Q": Q[:2]}, {}, "has no matrix 'Q_2'"),
        ({"P": P, "Q": Q}, {"convention": "rows"}, "unknown convention 'rows'; known: code, paper"),
        ({"P": P, "Q": Q}, {"layout": "x=4,y=1,visibility=causal"}, "the converted model is not the model of the file"),
    ],
)
def test_what_does_not_fit_is_named(arrays: dict, options: dict, message: str, tmp_path: Path):
    np.savez(tmp_path / "theirs.npz", **arrays)
    with pytest.raises(ForeignError, match=message):
        foreign.load(tmp_path / "theirs.npz", **options)
