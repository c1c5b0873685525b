"""Measuring: a model's layers against every step of every solver, group of prompts by group of prompts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.comparison.candidates import trajectories
from interp.comparison.metrics import Assigned, assign, distances, error_distances, standing_still
from interp.comparison.problems import Draws, flat
from interp.comparison.readouts import Read, own_read, predictions
from interp.covariance import Covariance
from interp.gaussian_process import posterior
from interp.solvers import Solver


@dataclass(frozen=True, eq=False)
class Measured:
    """One read-out of one model.

    Args:
        distance, error: by solver, d_lk and 1 − c_lk of every group [group, layer, step] (`metrics`).
        to_krr, to_target: rms distance of each layer to KRR and to f, over rms(KRR) and rms(f) [group, layer].
        krr_to_target: the same distance of KRR to f [group].
    """

    distance: Mapping[str, Float[Tensor, "group layer step"]]
    error: Mapping[str, Float[Tensor, "group layer step"]]
    to_krr: Float[Tensor, "group layer"]
    to_target: Float[Tensor, "group layer"]
    krr_to_target: Float[Tensor, "group"]

    @property
    def solvers(self) -> tuple[str, ...]:
        return tuple(self.distance)

    @property
    def layers(self) -> int:
        return self.to_krr.shape[1]

    def values(self, metric: str) -> dict[str, Float[Tensor, "group"]]:
        """A metric of every solver in every group, as a distance."""
        return {
            name: torch.tensor(
                [assign(metric, *tables).cost for tables in zip(self.distance[name], self.error[name], strict=True)],
                dtype=torch.float64,
            )
            for name in self.solvers
        }

    def assigned(self, metric: str) -> dict[str, Assigned]:
        """The steps of the layers, by the tables averaged over groups."""
        return {name: assign(metric, self.distance[name].mean(0), self.error[name].mean(0)) for name in self.solvers}

    def still(self, metric: str) -> float:
        """The metric of no iteration: step 0 is the same in every solver."""
        name = self.solvers[0]
        return standing_still(metric, self.distance[name].mean(0), self.error[name].mean(0))


def measure(
    model: Any,
    draws: Draws,
    covariance: Covariance,
    lam: float,
    solvers: Mapping[str, Solver],
    steps: int,
    read: Read | None = None,
) -> dict[str, Measured]:
    """By read-out, the model's layers on every group of prompts; see `compare` for the arguments and errors."""
    groups = [_group(model, *draws.group(i), covariance, lam, solvers, steps, read) for i in range(draws.groups)]
    return {name: _joined([group[name] for group in groups]) for name in groups[0]}


def _group(
    model: Any, train: Any, test: Any, covariance: Covariance, lam: float, solvers: Any, steps: int, read: Read | None
) -> dict[str, Measured]:
    first, krr = (posterior(covariance, lam, each.x, each.y, each.queries).mean for each in (train, test))
    read = read or own_read(model, test.target.shape[1])
    found = predictions(model, train, test, (first, krr), read)
    tracks = {name: flat(track) for name, track in trajectories(test, covariance, lam, solvers, steps).items()}
    R, f = krr.flatten(), test.target.flatten()
    measured = {}
    for name, layers in found.items():
        P = flat(layers)
        measured[name] = Measured(
            {solver: distances(P, track, R).cpu()[None] for solver, track in tracks.items()},
            {solver: error_distances(P, track, R).cpu()[None] for solver, track in tracks.items()},
            ((P - R).norm(dim=1) / R.norm()).cpu()[None],
            ((P - f).norm(dim=1) / f.norm()).cpu()[None],
            ((R - f).norm() / f.norm()).cpu()[None],
        )
    return measured


def _joined(groups: list[Measured]) -> Measured:
    return Measured(
        {name: torch.cat([group.distance[name] for group in groups]) for name in groups[0].solvers},
        {name: torch.cat([group.error[name] for group in groups]) for name in groups[0].solvers},
        torch.cat([group.to_krr for group in groups]),
        torch.cat([group.to_target for group in groups]),
        torch.cat([group.krr_to_target for group in groups]),
    )
