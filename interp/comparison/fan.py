"""The fan: error against context length, one curve a layer, beside one curve a step for each solver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from interp.comparison.candidates import CANDIDATES, check_solvers, trajectories
from interp.comparison.problems import Draws, Problems, check_lam
from interp.comparison.readouts import TO_KRR, Read, own_read, predictions
from interp.covariance import Covariance
from interp.gaussian_process import posterior
from interp.hooks import in_float64
from interp.solvers import Solver


@dataclass(frozen=True)
class Fan:
    """rms(prediction − f) / rms(f), a number for each context length.

    Args:
        lengths: context points.
        layers: by depth 1 … L.     solvers: by solver, then by step of `steps`.     krr: of kernel ridge regression.
    """

    lengths: tuple[int, ...]
    layers: tuple[tuple[float, ...], ...]
    solvers: Mapping[str, tuple[tuple[float, ...], ...]]
    steps: tuple[int, ...]
    krr: tuple[float, ...]
    readout: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "readout": self.readout,
            "lengths": list(self.lengths),
            "krr": list(self.krr),
            "layers": [list(curve) for curve in self.layers],
            "steps": list(self.steps),
            "solvers": {name: [list(curve) for curve in curves] for name, curves in self.solvers.items()},
        }


def fan(
    model: Any,
    prompts: Callable[[int], Callable[[int, int], Any]],
    lengths: tuple[int, ...],
    covariance: Covariance,
    lam: float,
    *,
    solvers: Mapping[str, Solver] | None = None,
    steps: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    readout: str = TO_KRR,
    read: Read | None = None,
    train: int = 512,
    test: int = 256,
) -> Fan:
    """Errors of all layers and steps at each context length; probes are fitted at each length by itself.

    Args:
        prompts: context length → a function (count, seed) of prompts; the rest as in `compare`.

    Raises:
        ValueError: as in `compare`; no length.
    """
    check_lam(lam)
    if not lengths or not steps:
        raise ValueError("fan: give at least one context length and one step")
    chosen, model = check_solvers(CANDIDATES if solvers is None else solvers), in_float64(model)
    found = []
    for n in lengths:
        pair = Draws(prompts(n), train, test).group(0)
        found.append(_at(model, *pair, covariance, lam, chosen, steps, readout, read))
    layers, by_solver, krr = zip(*found, strict=True)
    return Fan(
        tuple(lengths),
        tuple(zip(*layers, strict=True)),
        {name: tuple(zip(*(each[name] for each in by_solver), strict=True)) for name in chosen},
        tuple(steps),
        krr,
        readout,
    )


def _at(
    model: Any,
    train: Problems,
    test: Problems,
    covariance: Covariance,
    lam: float,
    solvers: Mapping[str, Solver],
    steps: tuple[int, ...],
    readout: str,
    read: Read | None,
) -> tuple[list[float], dict[str, list[float]], float]:
    """The errors at one length: of the layers, of the steps by solver, of KRR."""
    first, krr = (posterior(covariance, lam, each.x, each.y, each.queries).mean for each in (train, test))
    own = read or own_read(model, test.target.shape[1])
    layers = predictions(model, train, test, (first, krr), own)
    if readout not in layers:
        raise ValueError(f"fan: unknown readout {readout!r}; here: {', '.join(layers)}")
    tracks = trajectories(test, covariance, lam, solvers, max(steps))

    def errors(values: torch.Tensor) -> list[float]:
        return ((values - test.target).flatten(1).norm(dim=1) / test.target.norm()).tolist()

    by_solver = {name: errors(track[list(steps)]) for name, track in tracks.items()}
    return errors(layers[readout]), by_solver, errors(krr[None])[0]
