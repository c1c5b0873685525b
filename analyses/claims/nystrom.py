"""EAGLE extrapolates unseen slices of real kernel matrices as scikit-learn's Nystroem does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from sklearn import datasets
from sklearn.kernel_approximation import Nystroem
from torch import Tensor

from analyses.claims.claim import Findings, Settings
from analyses.claims.fits import bootstrap
from analyses.claims.plots import draw_curves
from interp.solvers import EAGLE, LeastSquares

DATA = {
    "diabetes": datasets.load_diabetes,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
STANDARD, WIDE = 1.0, 10.0
"""Bandwidths in units of the median distance; the wide one is no criterion, it makes kernels singular to rounding."""
SETTLED = 1e-13  # relative change of the slice from step to step at which EAGLE stops
TRUNCATION = 1e-12  # scikit-learn's Nystroem raises smaller eigenvalues of the landmarks' kernel to this


@dataclass(frozen=True)
class Sizes:
    """Landmarks, unseen points, random choices of both, and the most steps."""

    landmarks: int = 80
    unseen: int = 80
    splits: int = 3
    steps: int = 130


FULL = Sizes(landmarks=200, unseen=200, splits=10)


@dataclass(frozen=True, eq=False)
class Slices:
    """The unseen block of one kernel, by every road.

    Args:
        condition: largest over smallest eigenvalue of the landmarks' kernel.
        distances: EAGLE's relative distance to Nystroem after 0, 1, … steps.
        errors: EAGLE's relative distance to the exact slice, the same steps.
        reference: Nystroem's.
    """

    condition: float
    distances: list[float]
    errors: list[float]
    reference: float

    @property
    def ratio(self) -> float:
        return self.errors[-1] / self.reference


def measure(settings: Settings) -> Findings:
    return measure_at(FULL if settings.full else Sizes(), settings)


def measure_at(sizes: Sizes, settings: Settings) -> Findings:
    found = {
        (name, width): [
            _slices(name, width, split, sizes, settings.device) for split in _splits(width, sizes, settings)
        ]
        for name in DATA
        for width in (STANDARD, WIDE)
    }
    standard = [found[name, STANDARD] for name in DATA]
    where = (
        f"The largest over diabetes, breast cancer and digits (bundled, features as they are) and {sizes.splits} "
        f"choices of {sizes.landmarks} landmarks and {sizes.unseen} unseen points, seed {settings.seed}; RBF kernel "
        "with the median distance as its bandwidth; theory's constants"
    )
    return Findings(
        {
            "agreement": _largest(
                [[of.distances[-1] for of in row] for row in standard], _note(found, where), settings
            ),
            "slice": _largest([[of.ratio for of in row] for row in standard], where + _early(standard), settings),
        },
        _table(found),
        {"sizes": asdict(sizes)}
        | {f"{name}, {width:g} × median": [asdict(of) for of in row] for (name, width), row in found.items()},
        partial(_draw, {name: found[name, STANDARD][0] for name in DATA}),
    )


def _splits(width: float, sizes: Sizes, settings: Settings) -> range:
    return range(settings.seed, settings.seed + (sizes.splits if width == STANDARD else 1))


def rbf(name: str, width: float, split: int, count: int) -> tuple[Float[Tensor, "point feature"], float]:
    """`count` points of a data set, and the coefficient of the squared distance in exp(−gamma ‖x − x'‖²):
    1/2h², h the median of the positive distances times `width`."""
    X = torch.as_tensor(DATA[name](return_X_y=True)[0], dtype=torch.float64)
    points = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(split))[:count]]
    distances = torch.nn.functional.pdist(points)
    return points, float(1 / (2 * (width * distances[distances > 0].median()) ** 2))


def _slices(name: str, width: float, split: int, sizes: Sizes, device: str) -> Slices:
    """The block of the unseen points from their products with the landmarks: Cᵀ w, where EAGLE solves A w = C."""
    points, gamma = rbf(name, width, split, sizes.landmarks + sizes.unseen)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    K = (-gamma * distances.square()).exp()
    A, C, exact = K[: sizes.landmarks, : sizes.landmarks], K[: sizes.landmarks, sizes.landmarks :], K[sizes.landmarks :]
    seen = exact[:, sizes.landmarks :]
    reference = sklearn_slice(points, gamma, sizes.landmarks)
    iterates = eagle_slices(A.to(device), C.to(device), sizes.steps)
    values = torch.linalg.eigvalsh(A)
    return Slices(
        float(values[-1] / values[0].abs()),
        [_distance(block, reference) for block in iterates],
        [_distance(block, seen) for block in iterates],
        _distance(reference, seen),
    )


def eagle_slices(
    A: Float[Tensor, "landmark landmark"], C: Float[Tensor, "landmark unseen"], steps: int
) -> list[Float[Tensor, "unseen unseen"]]:
    """Cᵀ w after 0, 1, … steps of EAGLE with theory's constants, until it no longer changes."""
    problem, solver = LeastSquares(A[None], C[None]), EAGLE()
    state = solver.start(problem)
    blocks = [(C.mT @ state["w"][0]).cpu()]
    while len(blocks) <= steps and (len(blocks) < 3 or _distance(blocks[-1], blocks[-2]) > SETTLED):
        state = solver.step(problem, state)
        blocks.append((C.mT @ state["w"][0]).cpu())
    return blocks


def sklearn_slice(points: Float[Tensor, "point feature"], gamma: float, landmarks: int) -> Tensor:
    """What scikit-learn makes of the same landmarks: its features of the unseen points times themselves."""
    model = Nystroem(kernel="rbf", gamma=gamma, n_components=landmarks, random_state=0)
    features = model.fit(points[:landmarks].numpy()).transform(points[landmarks:].numpy())
    return torch.as_tensor(features @ features.T)


def _distance(block: Tensor, other: Tensor) -> float:
    size = float(other.norm())
    return float((block - other).norm()) / size if size else float("inf")


def _largest(values: Sequence[Sequence[float]], note: str, settings: Settings):
    """Over kernels and choices; the interval is over resampled choices."""
    by_split = torch.tensor(values, dtype=torch.float64).amax(0)
    return bootstrap(lambda chosen: chosen.amax(-1), by_split, note, settings.seed)


def _note(found: dict[tuple[str, float], list[Slices]], where: str) -> str:
    standard = [of for (_, width), row in found.items() if width == STANDARD for of in row]
    worst = max((row[0] for (_, width), row in found.items() if width == WIDE), key=lambda of: of.distances[-1])
    return (
        f"{where}. κ of the landmarks' kernel is {min(of.condition for of in standard):.0e} to "
        f"{max(of.condition for of in standard):.0e}, no regularisation is needed, and EAGLE settles after "
        f"{min(len(of.distances) for of in standard) - 1} to {max(len(of.distances) for of in standard) - 1} steps. At "
        f"{WIDE:g} times that bandwidth the worst kernel has κ = {worst.condition:.0e} in float64, where Nystroem "
        f"raises eigenvalues below {TRUNCATION:g} and EAGLE does not: they end {worst.distances[-1]:.0e} apart, each "
        f"{worst.errors[-1]:.0e} and {worst.reference:.0e} from the exact slice."
    )


def _early(standard: Sequence[Sequence[Slices]]) -> str:
    """How the ratio falls with the steps."""
    ratios = [
        max(of.errors[min(step, len(of.errors) - 1)] / of.reference for row in standard for of in row)
        for step in (10, 20, 30)
    ]
    return f". Stopped after 10, 20 and 30 steps the ratio is {ratios[0]:.3g}, {ratios[1]:.3g} and {ratios[2]:.3g}."


def _table(found: dict[tuple[str, float], list[Slices]]) -> str:
    """The first choice of every kernel."""
    lines = [f"{'kernel':<30}{'κ':>9}{'steps':>7}{'to Nystroem':>13}{'to the slice':>14}{'Nystroem to it':>16}"]
    for (name, width), (first, *_) in found.items():
        label = f"{name}, {width:g} × median"
        lines.append(
            f"{label:<30}{first.condition:>9.0e}{len(first.errors) - 1:>7}{first.distances[-1]:>13.1e}"
            f"{first.errors[-1]:>14.3e}{first.reference:>16.3e}"
        )
    return "\n".join(lines)


def _draw(found: dict[str, Slices], path: Path) -> None:
    curves = {f"{name}, to Nystroem": (range(len(of.distances)), of.distances) for name, of in found.items()}
    curves |= {f"{name}, to the exact slice": (range(len(of.errors)), of.errors) for name, of in found.items()}
    title = "EAGLE (1/3, 1) on RBF kernels, bandwidth = median distance"
    draw_curves(curves, path, title=title, x="iterations", y="relative distance of the unseen slice")
