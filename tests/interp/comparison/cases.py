"""A hooked module that plays a trajectory: its stream after block l holds a solver's prediction after m(l) steps."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from interp.comparison import CANDIDATES, Problems
from interp.comparison.candidates import trajectories
from interp.covariance import Covariance
from models.prompts import GaussianProcess

FAMILY = GaussianProcess(n=12, n_query=4, lam=0.3)
SMALL = {"steps": 24, "seeds": 4, "train": 24, "test": 24}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hook_resid_post = HookPoint()


class Player(HookedRootModule):
    """Plays S_{steps[l]} of a solver in the first column of its stream, times a factor, beside columns of the tokens.

    With `noise` the stream is a fixed random function of the tokens instead: a network that resembles nothing.
    """

    def __init__(self, solver: str, steps: tuple[int, ...], covariance: Covariance, lam: float, noise: int = 0) -> None:
        super().__init__()
        self.solver, self.steps, self.covariance, self.lam, self.noise = solver, steps, covariance, lam, noise
        self.cfg = SimpleNamespace(n_layers=len(steps), n_heads=1, d_model=3, d_head=1)
        self.blocks = nn.ModuleList(Block() for _ in steps)
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.setup()

    def forward(self, tokens: Tensor) -> Tensor:
        z = tokens
        for block, prediction in zip(self.blocks, self._predictions(tokens), strict=True):
            z = torch.zeros(*tokens.shape[:2], 3, dtype=tokens.dtype)
            z[:, -FAMILY.n_query :, :1], z[..., 1:] = prediction, tokens
            z = block.hook_resid_post(z)
        return z

    def _predictions(self, tokens: Tensor) -> Any:
        q = FAMILY.n_query
        x, y, queries = tokens[:, :-q, :1], tokens[:, :-q, 1:], tokens[:, -q:, :1]
        if self.noise:
            generator = torch.Generator().manual_seed(self.noise)
            weights = torch.randn(len(self.steps), 3, generator=generator, dtype=torch.float64)
            return [(a * queries + b * y.mean(1, keepdim=True) * queries + c).tanh() for a, b, c in weights]
        problems = Problems(tokens, x, y, queries, torch.zeros_like(queries))
        tracks = trajectories(
            problems, self.covariance, self.lam, {self.solver: CANDIDATES[self.solver]}, max(self.steps)
        )
        return tracks[self.solver][list(self.steps)]


def player(solver: str, steps: tuple[int, ...] = (1, 2, 3, 4)) -> Player:
    return Player(solver, steps, FAMILY.kernel, FAMILY.lam)


def noise(seed: int) -> Player:
    return Player("none", (0,) * 4, FAMILY.kernel, FAMILY.lam, noise=seed)


def read(z: Tensor) -> Tensor:
    """The column in which the player plays, at the query rows."""
    return z[:, -FAMILY.n_query :, :1]


def draw(count: int, seed: int) -> Any:
    return FAMILY.sample(count, seed=seed)
