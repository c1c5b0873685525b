"""Where the iteration behind the Richardson network contracts, and the two changes after which it does not."""

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.claim import Measurement, Settings
from interp.covariance import Covariance
from interp.gaussian_process import kernel_system
from interp.solvers import GradientDescent, KernelSystem, Preconditioned, iterate, row_sums
from models.constructions import PromptShape, richardson
from models.prompts import GaussianProcess, Prompts
from models.seeds import derived_seed

BATCH, STEPS = 20, 30
LAMBDA = 1.5


def raised(count: int, settings: Settings) -> Measurement:
    """On how many prompts, drawn wide, a step raises the error in the norm of K + λI."""
    found = sum(_raised(_wide(batch, settings.seed), settings) for batch in range(count // BATCH))
    text = (
        f"{count} prompts in batches of {BATCH}: N 2 … 64, λ 1e-3 … 1e3, lengthscale 0.03 … 3, d 1 … 3, share in a "
        f"cluster 0 … 1; the norm of K + λI, {STEPS} steps; labels standard normal"
    )
    return Measurement.exact(found, text)


def _wide(batch: int, seed: int) -> tuple[GaussianProcess, int]:
    drawn = derived_seed(seed, batch)
    u = torch.rand(5, generator=torch.Generator().manual_seed(drawn), dtype=torch.float64).tolist()
    task = GaussianProcess(
        n=2 + int(63 * u[0]),
        d=1 + int(3 * u[1]),
        lam=10 ** (6 * u[2] - 3),
        lengthscale=0.03 * 100 ** u[3],
        clustered=u[4],
    )
    return task, drawn


def _raised(drawn: tuple[GaussianProcess, int], settings: Settings) -> int:
    task, seed = drawn
    x = task.inputs(BATCH, torch.Generator().manual_seed(seed))[:, : task.n].to(settings.device)
    y = torch.randn(BATCH, task.n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    system = kernel_system(task.kernel, task.lam, x, y)
    alpha = iterate(Preconditioned(GradientDescent(1.0), row_sums), system, STEPS)
    return int(_rises(system, alpha).sum())


def _rises(system: KernelSystem, alpha: Float[Tensor, "step batch n 1"]) -> Tensor:
    """Does the norm of the error rise by more than rounding, in any step [batch]."""
    gap = alpha - system.solve(system.y)
    norm = (gap * (system.G @ gap)).sum((-1, -2)).clamp(min=0).sqrt()
    rounding = 1e-12 * norm[0]
    return (norm[1:] > norm[:-1] + rounding).any(0)


def _points(inputs: list[float], labels: list[float], query: float) -> Prompts:
    rows = torch.tensor([*zip(inputs, labels, strict=True), (query, 0.0)], dtype=torch.float64)[None]
    return Prompts(rows, torch.zeros(1, 1, 1, dtype=torch.float64))


@torch.no_grad()
def isolated(settings: Settings) -> Measurement:
    """A network with P = D on a prompt with a point far from all others."""
    prompts = _points([-0.9, 0.5, 0.52, 0.54, 0.56, 0.58], [1.0, 0.3, -0.2, 0.5, 0.1, -0.4], -0.88)
    kernel = Covariance("rbf", 0.1)
    best = kernel(prompts.B, prompts.A) @ kernel_system(kernel, LAMBDA, prompts.A, prompts.C).solve(prompts.C)
    errors = []
    for steps in (4, 40):
        built = richardson(
            PromptShape(1, n=6), LAMBDA, 0.1, steps, 512, 1.0, shift=1e-3, d_max=6.0, alpha_max=2 * LAMBDA**steps
        )
        answer = built.model.to(settings.device).predict(built.tokens(prompts).to(settings.device)).cpu()
        errors.append((answer - best).abs().max().item())
    text = (
        f"six points, one of them isolated, λ = {LAMBDA}, shift 1e-3 in place of λ: the error grows like λ^k; after 4 "
        f"blocks it is {errors[0]:.2g}, after 40 {errors[1]:.2g}"
    )
    return Measurement.exact(errors[1] / errors[0], text)


@torch.no_grad()
def causal(settings: Settings, n: int = 16, m: int = 1024) -> Measurement:
    """The network under a causal mask, against a triangular solve."""
    task = GaussianProcess(n=n, lam=0.1 * n)
    prompts = task.sample(64, seed=settings.seed)
    K = task.kernel(prompts.A, prompts.A)
    lower = K.tril() + task.lam * torch.eye(n, dtype=K.dtype)
    alpha = torch.linalg.solve_triangular(lower, prompts.C, upper=False)
    expected = task.kernel(prompts.B, prompts.A) @ alpha
    y_max = prompts.C.abs().max().item() + 0.1
    built = richardson(PromptShape(1, n=n), task.lam, task.lengthscale, 60, m, y_max, causal=True)
    answer = built.model.to(settings.device).predict(built.tokens(prompts).to(settings.device)).cpu()
    distance = ((answer - expected).square().mean() / expected.square().mean()).sqrt().item()
    return Measurement.exact(distance, f"N = {n}, λ = 0.1 N, 60 steps, m = {m}, 64 prompts, seed {settings.seed}")
