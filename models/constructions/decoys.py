"""Models that are no member of any family: whoever names them is wrong.

Every decoy is a `Construction` of the family "unknown", whose settings say what was done: `of`, the family it was made
from, `layer`, the one layer that leaves the set (or None where every layer does), and `seed`, that of the member. A
layer is only ever spoilt where that reaches the output: the last layer's x-columns do not. Decoys that explode on
prompts with ‖A‖₂ ≤ 1 would be easy to tell, and are drawn again.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from models.config import TransformerConfig
from models.constructions.construction import Construction, PromptShape
from models.constructions.draws import CONSTRUCTIONS, Chance, Draw, drawn, unit
from models.constructions.eagle import eagle_model
from models.constructions.heads import weights_of, with_weights
from models.constructions.weights import Head, from_heads, linear_model, place
from models.prompts import LogUniformSpectrum
from models.prompts.random import gaussian
from models.transformer import HookedTransformer

UNKNOWN = "unknown"
ATTEMPTS = 30
BOUND = 20.0  # of the largest label
Spoil = Callable[[Chance, Construction, int], Construction]
CORRUPTIBLE = tuple(name for name in CONSTRUCTIONS if name != "functional GD")
REVERSIBLE = tuple(name for name in CONSTRUCTIONS if name != "averaging")  # whose last layer makes good every share


def unknown(
    model: HookedTransformer, of: str | None = None, layer: int | None = None, **settings: object
) -> Construction:
    """A decoy: made from which family, spoilt in which layer."""
    return Construction(UNKNOWN, model, {"of": of, "layer": layer, **settings})


def _at_least(layers: int, needed: int, what: str) -> None:
    if layers < needed:
        raise ValueError(f"{what} needs at least {needed} layers to be outside every family, got {layers}")


def _random_weights(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """One or two heads of Gaussian weights, of the size of a known algorithm's."""
    layout, heads = shape.layout(), 1 + chance.below(2)
    size = (layers, heads, layout.d_model, layout.d_model)
    Q, V = (gaussian(size, chance.generator) * (0.25 / layout.d_model) ** 0.5 for _ in range(2))
    return unknown(linear_model(Q * unit(shape), V, layout, shape.scale))


def _random_words(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """Equivariant, with z_y S_yx → x and z_y S_yy → y beside the two words of EAGLE, and signs at random."""
    _at_least(layers, 2, "random words")
    layout, size = shape.layout(), unit(shape)

    def signed(low: float, high: float) -> float:
        return (1 - 2 * chance.below(2)) * size * chance.uniform(low, high)

    def head(block: str, low: float, high: float) -> Head:
        value = {("x", "x"): signed(low, high), ("y", "y"): signed(low, high)}
        return place(layout, {(block, block): 1.0}), place(layout, value)

    return unknown(from_heads([[head("x", 0.2, 0.6), head("y", 0.1, 0.3)] for _ in range(layers)], layout, shape.scale))


def _flipped(name: str) -> Draw:
    """A mild schedule of (η, γ) with one sign turned; an η not in the last layer, where it does nothing."""

    def family(chance: Chance, shape: PromptShape, layers: int) -> Construction:
        _at_least(layers, 2 if name == "eta" else 1, f"a wrong sign of {name}")
        eta = [-unit(shape) * step for step in chance.uniforms(0.2, 0.6, layers)]
        gamma = [unit(shape) * step for step in chance.uniforms(0.3, 1.2, layers)]
        layer = chance.below(layers - 1 if name == "eta" else layers)
        steps = {"eta": eta, "gamma": gamma}
        steps[name][layer] *= -1
        return unknown(eagle_model(shape, eta, gamma), "scheduled EAGLE", layer, **steps)

    return drawn(family)


def _from_member(spoil: Spoil, families: tuple[str, ...]) -> Draw:
    """A member of one of the families, drawn at random, with one layer spoilt."""

    def draw(seed: int, d: int, d_out: int = 1, n: int = 12, layers: int = 3, n_query: int = 1) -> Construction:
        chance = Chance(seed)
        name = families[chance.below(len(families))]
        member = CONSTRUCTIONS[name](seed, d, d_out, n, layers, n_query)
        return spoil(chance, member, chance.below(layers))

    return draw


def reversed_layer(chance: Chance, member: Construction, layer: int) -> Construction:
    """Every step of one layer with the opposite sign."""
    W = weights_of(member.model)
    W["W_V"] = W["W_V"].clone()
    W["W_V"][layer] *= -1
    return unknown(with_weights(member.model, W), member.family, layer)


def corrupted_layer(chance: Chance, member: Construction, layer: int) -> Construction:
    """Noise on the queries' weights W_Q of one layer, of a relative Frobenius size between 0.3 and 1."""
    W, size = weights_of(member.model), chance.uniform(0.3, 1)
    noise = gaussian(W["W_Q"][layer].shape, chance.generator)
    W["W_Q"] = W["W_Q"].clone()
    W["W_Q"][layer] += noise * size * W["W_Q"][layer].norm() / noise.norm()
    return unknown(with_weights(member.model, W), member.family, layer, size=size)


def _untrained(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """The weights with which training would start."""
    layout = shape.layout()
    cfg = TransformerConfig(layers, 1, layout.d_model, layout.d_model, seed=chance.below(2**31))
    return unknown(HookedTransformer(cfg, layout).double())


def _memorised_answer(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """One answer for every prompt and query, through the constant column: z_constant S[constant, constant] → y."""
    layout = shape.layout({"constant": 1})
    query = place(layout, {("constant", "constant"): 1.0})
    answer = gaussian((1, shape.d_out), chance.generator)
    head = query, place(layout, {("constant", "y"): -shape.linear(1 / layers) * answer})
    return unknown(from_heads([[head]] * layers, layout, shape.scale), answer=answer.tolist())


def _memorised_weights(chance: Chance, shape: PromptShape, layers: int) -> Construction:
    """x_q W with one W for every prompt: z_x S[constant, constant] → y, a head a column of y."""
    layout = shape.layout({"constant": 1})
    W = gaussian((shape.d, shape.d_out), chance.generator)
    target = torch.eye(shape.d_out, dtype=torch.float64) * -shape.linear(1 / layers)
    heads = [
        (place(layout, {("x", "constant"): W[:, [j]]}), place(layout, {("constant", "y"): target[[j]]}))
        for j in range(shape.d_out)
    ]
    return unknown(from_heads([heads] * layers, layout, shape.scale), weights=W.tolist())


def tame(draw: Draw) -> Draw:
    """The same draw, repeated until the answers to some prompts are bounded; the last of `ATTEMPTS` in any case."""

    def tamed(seed: int, d: int, d_out: int = 1, n: int = 12, layers: int = 3, n_query: int = 1) -> Construction:
        chance, kappa = Chance(seed), 5.0 if min(n, d) > 1 else 1.0
        prompts = LogUniformSpectrum(n=n, d=d, n_query=n_query, d_out=d_out, kappa=kappa).sample(64, seed=0)

        def attempt() -> Construction:
            again = chance.below(2**31)
            decoy = draw(again, d, d_out, n, layers, n_query)
            return replace(decoy, settings={**decoy.settings, "seed": again})

        decoy = attempt()
        for _ in range(ATTEMPTS - 1):
            if decoy.predict(prompts).abs().max() < BOUND * prompts.C.abs().max():
                break
            decoy = attempt()
        return decoy

    return tamed


DRAWS: dict[str, Draw] = {
    "random weights": drawn(_random_weights),
    "random words": drawn(_random_words),
    "wrong sign of η": _flipped("eta"),
    "wrong sign of γ": _flipped("gamma"),
    "reversed layer": _from_member(reversed_layer, REVERSIBLE),
    "corrupted layer": _from_member(corrupted_layer, CORRUPTIBLE),
    "untrained": drawn(_untrained, scaled=False),
    "memorised answer": drawn(_memorised_answer),
    "memorised weights": drawn(_memorised_weights),
}
DECOYS: dict[str, Draw] = {name: tame(draw) for name, draw in DRAWS.items()}
"""What was done → a draw of such models, by seed and sizes."""
