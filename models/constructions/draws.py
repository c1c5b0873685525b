"""Random members of every family, valid for prompts with ‖A‖₂ ≤ 1, clearly outside the family's smaller neighbours.

Every function takes a seed and the sizes. About a third of the members have the scale "n" (AᵀA/n in place of AᵀA), with
settings n times as large, so that the same prompts are in their domain. With fewer than three layers some families
coincide whatever their settings: one layer of GD, Chebyshev, EAGLE; two of scheduled GD and Chebyshev.
"""

from collections.abc import Callable, Sequence

import torch

from models.constructions.alternating import alternating_gradient_descent
from models.constructions.averaging import averaging
from models.constructions.chebyshev import chebyshev_nodes
from models.constructions.construction import Construction, PromptShape
from models.constructions.distributed import distributed_eagle, one_head_a_machine
from models.constructions.eagle import T3, THEORY, contraction, eagle, gd_plus_plus, scheduled_eagle
from models.constructions.functional import functional_gradient_descent
from models.constructions.gradient_descent import gradient_descent, scheduled_gradient_descent
from models.constructions.heavy_ball import heavy_ball
from models.constructions.preconditioned import preconditioned_gradient_descent
from models.constructions.rank_limited import rank_limited_eagle
from models.constructions.ridge import ridge_gradient_descent
from models.prompts.random import haar_frames

Draw = Callable[..., Construction]
"""(seed, d, d_out=1, n=12, layers=3, n_query=1) → a random member of a family, or a random decoy."""


class Chance:
    """A seeded source of settings."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self.generator, dtype=torch.float64).item()

    def uniforms(self, low: float, high: float, count: int) -> list[float]:
        return [self.uniform(low, high) for _ in range(count)]

    def below(self, stop: int) -> int:
        return int(torch.randint(stop, (), generator=self.generator))

    def permutation(self, count: int) -> list[int]:
        return torch.randperm(count, generator=self.generator).tolist()


Family = Callable[[Chance, PromptShape, int], Construction]


def unit(shape: PromptShape) -> float:
    """What a setting in units of 1/λ_max(AᵀA) is multiplied by: n if the layer divides by n."""
    return float(shape.n or 1) if shape.scale == "n" else 1.0


def drawn(family: Family, scaled: bool = True) -> Draw:
    """The family as a function of seed and sizes."""

    def draw(seed: int, d: int, d_out: int = 1, n: int = 12, layers: int = 3, n_query: int = 1) -> Construction:
        chance = Chance(seed)
        scale = "n" if scaled and chance.below(3) == 0 else "none"
        return family(chance, PromptShape(d, d_out, n_query, scale, n), layers)

    return draw


def _gradient_descent(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return gradient_descent(shape, unit(shape) * chance.uniform(0.3, 1.9), layers)


def _scheduled(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return scheduled_gradient_descent(shape, schedule(chance, unit(shape), layers))


def schedule(chance: Chance, unit: float, layers: int) -> list[float]:
    """Step sizes that are neither one number nor, from three layers on, near the nodes of an interval."""
    while True:
        gamma = chance.uniforms(0.3, 1.9, layers)
        if layers == 1 or (max(gamma) > 1.3 * min(gamma) and (layers == 2 or distance_to_nodes(gamma) > 0.1)):
            return [unit * step for step in gamma]


def distance_to_nodes(gamma: Sequence[float]) -> float:
    """Relative distance of 1/γ, sorted, from the Chebyshev nodes of the interval that fits best."""
    layers = len(gamma)
    inverse = torch.tensor(gamma, dtype=torch.float64).reciprocal().sort(descending=True).values
    angle = torch.pi * (2 * torch.arange(layers, dtype=torch.float64) + 1) / (2 * layers)
    basis = torch.stack([torch.ones_like(angle), angle.cos()], dim=1)
    fit = basis @ torch.linalg.lstsq(basis, inverse[:, None]).solution
    return ((fit[:, 0] - inverse).norm() / inverse.norm()).item()


def _chebyshev(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    interval = (chance.uniform(0.1, 0.4) / unit(shape), chance.uniform(1, 1.2) / unit(shape))
    return chebyshev_nodes(shape, interval, layers, chance.permutation(layers))


def _preconditioned(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    frames = haar_frames(layers, shape.d, shape.d, chance.generator)
    spectra = [[0.3, 1.7][: shape.d] + chance.uniforms(0.3, 1.7, shape.d - 2) for _ in range(layers)]
    matrices = [
        unit(shape) * frame @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ frame.mT
        for frame, spectrum in zip(frames, spectra, strict=True)
    ]
    return preconditioned_gradient_descent(shape, [(matrix + matrix.mT) / 2 for matrix in matrices])


def _gd_plus_plus(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    eta, gamma = -unit(shape) * chance.uniform(0.2, 0.9), unit(shape) * chance.uniform(0.4, 1.8)
    return gd_plus_plus(shape, eta, gamma, layers)


def _eagle(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    named = (THEORY, T3, (-chance.uniform(0.25, 1.3), chance.uniform(0.7, 1.8)))
    eta, gamma = named[chance.below(3)]
    return eagle(shape, eta, gamma, layers, norm=chance.uniform(1, 1.3) * unit(shape) ** -0.5)


def eagle_schedule(chance: Chance, unit: float, layers: int) -> tuple[list[float], list[float]]:
    """η_l and γ_l in units of the norms that they lead to, with γ neither constant nor geometric."""
    while True:
        eta, gamma, size = [], [], unit**-0.5
        for _ in range(layers):
            relative = -chance.uniform(0.25, 1.3)
            eta.append(relative / size**2)
            gamma.append(chance.uniform(0.5, 1.8) / size**2)
            size *= contraction(relative)
        logs = torch.tensor(gamma, dtype=torch.float64).log()
        if layers < 3 or logs.diff().diff().abs().max() > 0.3:
            return eta, gamma


def _scheduled_eagle(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return scheduled_eagle(shape, *eagle_schedule(chance, unit(shape), layers))


def _heavy_ball(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return heavy_ball(shape, unit(shape) * chance.uniform(0.3, 1.2), chance.uniform(0.3, 0.8), layers)


def _ridge(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    gamma, penalty = unit(shape) * chance.uniform(0.3, 1.2), chance.uniform(0.2, 0.6) / unit(shape)
    return ridge_gradient_descent(shape, gamma, penalty, layers)


def _averaging(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return averaging(shape, [*chance.uniforms(0.1, 0.5, layers - 1), 1.0])


def _distributed(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """On a number of machines that divides n, with queries that sum, average, or step by coefficients of their own."""
    machines = _machines(chance, shape)
    eta, gamma = eagle_schedule(chance, unit(shape), layers)
    factor = (1.0, 1 / machines, chance.uniform(0.4, 0.9))[chance.below(3)]
    steps = eta, gamma, [factor * value for value in eta], [factor * value for value in gamma]
    return distributed_eagle(shape, machines, *steps)


def _machines(chance: Chance, shape: PromptShape) -> int:
    """A small number of machines, at least two, that divides n."""
    divisors = [m for m in range(2, (shape.n or 0) + 1) if (shape.n or 0) % m == 0][:3]
    if not divisors:
        raise ValueError(f"distributed EAGLE needs at least two context rows, got n = {shape.n}")
    return divisors[chance.below(len(divisors))]


def _one_head_a_machine(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return one_head_a_machine(shape, _machines(chance, shape), *eagle_schedule(chance, unit(shape), layers))


def _rank_limited(heads: int) -> Family:
    """EAGLE with one head of rank ⌈d/2⌉ a layer, or with two that are complementary, in random frames."""

    def family(chance: Chance, shape: PromptShape, layers: int) -> Construction:
        rank = (shape.d + 1) // 2
        turns = haar_frames(layers, shape.d, shape.d, chance.generator)
        parts = [(turn[:, :rank], turn[:, rank:])[: heads if rank < shape.d else 1] for turn in turns]
        return rank_limited_eagle(shape, *eagle_schedule(chance, unit(shape), layers), parts)

    return family


def _functional(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """γ below 2/λ_max(K) for ‖A‖₂ ≤ 1, by the trace of K."""
    similarity = ("exp", "gaussian", "laplace", "relu")[chance.below(4)]
    bandwidth = 1.0 if similarity == "relu" else chance.uniform(0.8, 1.5)
    n = shape.n or 1
    trace = {"exp": n * torch.e ** (bandwidth**-2), "relu": float(min(n, shape.d))}.get(similarity, float(n))
    return functional_gradient_descent(shape, similarity, schedule(chance, 1 / trace, layers), bandwidth)


def _alternating(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    return alternating_gradient_descent(shape, [chance.uniform(0.3, 1.9)] * layers)


CONSTRUCTIONS: dict[str, Draw] = {
    "gradient descent": drawn(_gradient_descent),
    "Chebyshev nodes": drawn(_chebyshev),
    "scheduled GD": drawn(_scheduled),
    "preconditioned GD": drawn(_preconditioned),
    "GD++": drawn(_gd_plus_plus),
    "EAGLE": drawn(_eagle),
    "scheduled EAGLE": drawn(_scheduled_eagle),
    "heavy ball": drawn(_heavy_ball),
    "ridge GD": drawn(_ridge),
    "averaging": drawn(_averaging),
    "distributed EAGLE": drawn(_distributed),
    "functional GD": drawn(_functional, scaled=False),
}
"""Every family of MATH §9 but the last, by its name."""

VARIANTS: dict[str, Draw] = {
    "gradient descent, alternating tokens": drawn(_alternating, scaled=False),
    "distributed EAGLE, one head a machine": drawn(_one_head_a_machine),
    "scheduled EAGLE, complementary heads": drawn(_rank_limited(2)),
    "rank-limited EAGLE, one head": drawn(_rank_limited(1)),
}
"""The same families in prompts or heads of another form; and one that is no family, since no words describe it."""
