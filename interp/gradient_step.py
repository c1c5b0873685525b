"""How much of a prediction is a gradient step, and whether a tuned one does better.

With inputs A, labels C and queries B, one gradient step on ½‖A w − C‖² from w = 0 answers γ · B AᵀC; k steps with any
step sizes, or any other first-order method of k steps, answer Σ_{j ≤ k} c_j B (AᵀA)^{j−1} AᵀC; the c_j fitted here are
the same for all prompts, while those of conjugate gradients are not. All regressions are without a constant.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Answers = Float[Tensor, "batch query out"]


@dataclass(frozen=True)
class GradientShare:
    """A prediction regressed on the gradient direction B AᵀC.

    Args:
        step, step_error: the effective step size and its standard error over prompts.
        share: 1 − res/var, the residual's mean square over the prediction's variance.
        r2: 1 − res / mean square of the prediction.
    """

    step: float
    step_error: float
    share: float
    r2: float
    prompts: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"effective step size {self.step:.4g} ± {self.step_error:.2g} (prediction on x_qᵀXᵀy, no constant); the "
            f"step is a share 1 − res/var = {self.share:.4f} of the prediction"
        )


def gradient_directions(
    A: Float[Tensor, "batch n d"], B: Float[Tensor, "batch query d"], C: Float[Tensor, "batch n out"], steps: int = 1
) -> Float[Tensor, "step batch query out"]:
    """B (AᵀA)^{j−1} AᵀC for j = 1 … steps."""
    if steps < 1:
        raise ValueError(f"gradient_directions: steps={steps} must be at least 1")
    v, found = A.mT @ C, []
    for _ in range(steps):
        found.append(B @ v)
        v = A.mT @ (A @ v)
    return torch.stack(found)


def gradient_share(prediction: Answers, direction: Answers) -> GradientShare:
    """The prediction as step · direction.

    Raises:
        ValueError: shapes that differ, a direction or a variance of the prediction that is 0.
    """
    if prediction.shape != direction.shape:
        raise ValueError(
            f"gradient_share: the prediction is {list(prediction.shape)}, the direction {list(direction.shape)}"
        )
    size, variance = direction.square().sum(), (prediction - prediction.mean(0)).square().mean()
    if not (size > 0 and variance > 0):
        raise ValueError("gradient_share: the gradient direction is 0, or the prediction the same, on all prompts")
    step = (prediction * direction).sum() / size
    residual = prediction - step * direction
    per_prompt = (residual * direction).flatten(1).sum(1)
    return GradientShare(
        step=step.item(),
        step_error=(per_prompt.square().sum().sqrt() / size).item(),
        share=1 - (residual.square().mean() / variance).item(),
        r2=1 - (residual.square().sum() / prediction.square().sum()).item(),
        prompts=len(prediction),
    )


def tuned_steps(directions: Float[Tensor, "step batch query out"], target: Answers) -> Float[Tensor, "step"]:
    """The coefficients c_j of least squared error."""
    design = directions.flatten(1).T
    scale = design.norm(dim=0)
    return torch.linalg.lstsq(design / scale, target.flatten()[:, None]).solution[:, 0] / scale
