"""The update rule of a transformer, run outside of it."""

from dataclasses import dataclass
from typing import Any

from interp.solvers.masked_rows import layer, unit_queries
from interp.solvers.problems import Quadratic
from interp.solvers.settings import rows
from interp.solvers.spectral_norm import squared_norm
from interp.solvers.units import rescaled


@dataclass(frozen=True)
class ExtractedRule:
    """A ← A + η_l A AᵀA/u_l,  C ← C − γ_l A AᵀC/u_l,  B, D likewise, from B = I, D = 0; w = sign · D. One step a layer.

    In the rule's own units u_l = 1 (n where coefficients are per n): what the transformer does, on problems like its
    prompts. With `norms` u_l is ‖A_l‖² of the current A_l, and η_l, γ_l are multiplied by norms_l²: the same rule on
    prompts whose norms are these, and on any other matrix what it does in units of the spectral norm.

    Args:
        eta, gamma: signed coefficients by layer, of the rule's closed form.
        sign: of the read-out.
        per_n: are the coefficients of AᵀA/n.
        norms: ‖A_l‖₂ by layer as measured on prompts (of A_l/√n where per n), or nothing for the rule's own units.

    Source: `UpdateRule.solver`; MATH §4.
    """

    eta: tuple[float, ...]
    gamma: tuple[float, ...]
    sign: float = -1.0
    per_n: bool = False
    norms: tuple[float, ...] | None = None

    @property
    def depth(self) -> int:
        """The number of layers: no more steps than that."""
        return len(self.gamma)

    @property
    def unit_free(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """η_l‖A_l‖² and γ_l‖A_l‖², or nothing in the rule's own units."""
        if self.norms is None:
            return None
        eta, gamma = (
            tuple(value * norm**2 for value, norm in zip(values, self.norms, strict=True))
            for values in (self.eta, self.gamma)
        )
        return eta, gamma

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = rows("ExtractedRule", problem)
        return unit_queries(A, C)

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        step, A = state["step"], state["A"]
        if step >= self.depth:
            raise ValueError(f"ExtractedRule: the rule has {self.depth} layers; ask for at most as many steps")
        if self.norms is None:
            unit = 1 / A.shape[1] if self.per_n else 1.0
        else:
            state = rescaled(state)
            unit = self.norms[step] ** 2 / squared_norm(state["A"])
        after = layer(state, self.eta[step] * unit, self.gamma[step] * unit)
        return {**after, "w": self.sign * after["D"]}
