"""EAGLE in scalars, prompt by prompt, by spectrum and parts of the solution: a road without products of matrices."""

import torch

from analyses.claims.systems import log_uniform


def errors_of_log_uniform(
    kappa: float, d: int, prompts: int, seed: int, point: tuple[float, float], steps: int
) -> torch.Tensor:
    """Relative errors [step, prompt] of the systems that `log_uniform` draws."""
    system = log_uniform(kappa, (d, d), prompts, seed)
    _, sigma, V = torch.linalg.svd(system.problem.A)
    parts = (V @ system.exact)[..., 0]
    eta, gamma = point
    r, seen = torch.ones_like(sigma), []
    for _ in range(steps + 1):
        seen.append((r * parts).norm(dim=1) / parts.norm(dim=1))
        g = (sigma / sigma.abs().amax(1, keepdim=True)) ** 2
        r, sigma = r - gamma * g * r, sigma + eta * g * sigma
    return torch.stack(seen)
