"""Members by mistake: a member of a small family with layers changed, which makes it a member of a larger one.

They are `Construction`s of the larger family. `of` in the settings are the families that would be false names, `layer`
is the first layer that was changed. Three layers or more: two step sizes are the Chebyshev nodes of an interval, and
two layers of (η, γ) an EAGLE of some ‖A_0‖.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from models.constructions.construction import Construction, PromptShape
from models.constructions.draws import CONSTRUCTIONS, Chance, Draw, distance_to_nodes
from models.constructions.eagle import scheduled_eagle
from models.constructions.gradient_descent import scheduled_gradient_descent

Steps = dict[str, list[float]]
Change = Callable[[Chance, list[Steps], int], int]
MINIMUM = 3
NODES_APART = 0.05  # relative distance of 1/γ from the Chebyshev nodes of every interval
RATIO_APART = 0.2  # largest log ratio by which (η, γ) leave a geometric sequence
BOUND = 4.0  # growth of what a layer holds; a change that makes later layers diverge is drawn again


def _made(change: Change, *families: str) -> Draw:
    """`change` applied to members of the families, again with other members until the result is clearly outside."""

    def draw(seed: int, d: int, d_out: int = 1, n: int = 12, layers: int = 3, n_query: int = 1) -> Construction:
        if layers < MINIMUM:
            raise ValueError(f"a member by mistake needs at least {MINIMUM} layers, got {layers}: fewer may be a tie")
        chance = Chance(seed)
        while True:
            again = chance.below(2**31)
            members = [CONSTRUCTIONS[family](again, d, d_out, n, layers, n_query) for family in families]
            steps = [_steps_of(member, layers) for member in members]
            layer = change(chance, steps, layers)
            domain = 1 / n if members[0].settings["scale"] == "n" else 1.0
            if is_clear(steps[0]) and growth(steps[0], domain) < BOUND:
                return _built(members[0], steps[0], families, layer)

    return draw


def _one_of(name: str) -> Change:
    """One layer's η or γ made 0.4 to 0.7 times as large; an η not in the last layer, where it does nothing."""

    def change(chance: Chance, steps: list[Steps], layers: int) -> int:
        layer = chance.below(layers - (name == "eta"))
        steps[0][name][layer] *= chance.uniform(0.4, 0.7)
        return layer

    return change


def _mix(chance: Chance, steps: list[Steps], layers: int) -> int:
    """The first layers of one member, the others of the other."""
    cut = 1 + chance.below(layers - 1)
    for name, values in steps[0].items():
        values[cut:] = steps[1][name][cut:]
    return cut


def _steps_of(member: Construction, layers: int) -> Steps:
    """η_l (0 for gradient descent) and γ_l of a member, from its settings."""
    norms = member.settings.get("norms", [1.0] * layers)
    steps = {}
    for name in ("eta", "gamma"):
        value = member.settings.get(name, 0.0)
        values = value if isinstance(value, list) else [value] * layers
        steps[name] = [step / norm**2 for step, norm in zip(values, norms, strict=True)]
    return steps


def is_clear(steps: Steps) -> bool:
    """Are the steps clearly outside the smaller families: the nodes of an interval, geometric sequences of (η, γ)."""
    if not any(steps["eta"]):
        return distance_to_nodes(steps["gamma"]) > NODES_APART
    eta, gamma = (torch.tensor(steps[name], dtype=torch.float64).abs().log().diff() for name in ("eta", "gamma"))
    return bool(torch.cat([gamma.diff(), (eta - gamma)[:-1]]).abs().max() > RATIO_APART)


def growth(steps: Steps, domain: float) -> float:
    """The largest |p_l| or |r_l| of the closed form (MATH §4) over eigenvalues 0 ≤ g ≤ domain of AᵀA."""
    g = torch.linspace(0, domain, 200, dtype=torch.float64)
    p, r, largest = torch.ones_like(g), torch.ones_like(g), 1.0
    for eta, gamma in zip(steps["eta"], steps["gamma"], strict=True):
        p, r = p * (1 + eta * g * p**2), r * (1 - gamma * g * p**2)
        largest = max(largest, p.abs().max().item(), r.abs().max().item())
    return largest


def _built(member: Construction, steps: Steps, families: tuple[str, ...], layer: int) -> Construction:
    """The schedule as a member of the larger family, in the layout and scale of `member`."""
    layout = member.model.layout
    shape = PromptShape(layout.widths["x"], layout.widths["y"], layout.n_query, member.settings["scale"])
    if any(steps["eta"]):
        larger = scheduled_eagle(shape, steps["eta"], steps["gamma"])
    else:
        larger = scheduled_gradient_descent(shape, steps["gamma"])
    return replace(larger, settings={**larger.settings, "of": list(families), "layer": layer})


MISTAKES: dict[str, Draw] = {
    "gradient descent, one γ changed": _made(_one_of("gamma"), "gradient descent"),
    "Chebyshev nodes, one γ changed": _made(_one_of("gamma"), "Chebyshev nodes"),
    "gradient descent, then Chebyshev nodes": _made(_mix, "gradient descent", "Chebyshev nodes"),
    "GD++, one γ changed": _made(_one_of("gamma"), "GD++"),
    "GD++, one η changed": _made(_one_of("eta"), "GD++"),
    "EAGLE, one γ changed": _made(_one_of("gamma"), "EAGLE"),
    "EAGLE, one η changed": _made(_one_of("eta"), "EAGLE"),
    "GD++, then EAGLE": _made(_mix, "GD++", "EAGLE"),
}
"""What was done → a draw of such models, by seed and sizes; the `family` of each is the larger one."""
