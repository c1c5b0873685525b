"""The answer about a model's heads and MLPs, as values; `text` prints it."""

from dataclasses import dataclass
from typing import Any

from interp.covariance import Covariance
from interp.heads.decodable import NAMES, Decodable
from interp.heads.mlps import FEATURES, MLPFit
from interp.heads.operator import OperatorFit
from interp.heads.scores import ScoreFit


@dataclass(frozen=True)
class HeadFit:
    """One head on one route, beside the head of the untrained network."""

    layer: int
    head: int
    route: str
    scores: ScoreFit
    operator: OperatorFit
    untrained_scores: ScoreFit
    untrained_operator: OperatorFit

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "head": self.head,
            "route": self.route,
            "scores": self.scores.to_dict(),
            "operator": self.operator.to_dict(),
            "untrained": {"scores": self.untrained_scores.to_dict(), "operator": self.untrained_operator.to_dict()},
        }


@dataclass(frozen=True)
class HeadsReport:
    """What the heads and MLPs of a model compute on prompts of a Gaussian process.

    Args:
        covariance, lam: of the process.     prompts: how many for scores and operators, and for probes and MLPs.
        heads: one entry a layer, head and route.
        decodable: by target (row-sums, kernel-dual, label); empty where tokens in front hold no point.
        mlps: one entry a layer; none without MLPs.     notes: what a reader should know.
    """

    covariance: Covariance
    lam: float
    prompts: tuple[int, int]
    heads: tuple[HeadFit, ...]
    decodable: dict[str, Decodable]
    mlps: tuple[MLPFit, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from interp.heads.text import text

        return text(self)

    @property
    def mlp_verdict(self) -> str:
        """What the MLPs' outputs follow, in a sentence."""
        if not self.mlps:
            return "the model has no MLPs"
        words = {
            "local": "the token's own state (x, y, p, α) better than sums over other tokens",
            "cross": "sums over other tokens (attention output, Ky, Kα) better than the token's own state",
            "both": "both alike, and the regression does not tell which",
            "neither": "neither: less than half is explained by one of them",
        }
        found: dict[str, list[str]] = {}
        for fit in self.mlps:
            found.setdefault(fit.verdict, []).append(str(fit.layer))
        parts = [f"layer{'s' * (len(layers) > 1)} {', '.join(layers)}: {words[name]}" for name, layers in found.items()]
        return "MLP outputs follow, in " + "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "covariance": self.covariance.to_dict(),
            "lam": self.lam,
            "prompts": list(self.prompts),
            "heads": [head.to_dict() for head in self.heads],
            "decodable": {name: found.to_dict() for name, found in self.decodable.items()},
            "decodable_symbols": {name: NAMES[name] for name in self.decodable},
            "mlps": [fit.to_dict() for fit in self.mlps],
            "mlp_features": dict(FEATURES),
            "mlp_verdict": self.mlp_verdict,
            "notes": list(self.notes),
        }
