"""Rows that lie on several machines: systems of a prescribed diversity, and EAGLE that estimates w from them.

The diversity index α is the smallest positive eigenvalue of the mean over machines of the projections on range(A_μᵀ)
(MATH §4): 1 if every machine sees every direction, small if some direction is seen by few.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.systems import System, consistent
from interp.solvers import THEORY
from interp.solvers.problems import Quadratic
from interp.solvers.settings import machine_rows
from interp.solvers.spectral_norm import squared_norm


@dataclass(frozen=True)
class DistributedEstimation:
    """w ← w + γ mean_μ A_μᵀ K_μ (C_μ − X_μ w)/ν_μ²,  A_μ ← T_μ A_μ,  K_μ ← T_μ K_μ,  T_μ = I + η A_μ A_μᵀ/ν_μ².

    EAGLE's estimation of w (MATH §4: w ← w − H⁻¹∇) with each machine's own preconditioner, and their mean: X_μ, C_μ are
    the machine's rows, A_μ starts at X_μ and K_μ at I, ν_μ = ‖A_μ‖₂. A round sends A_μᵀK_μ(C_μ − X_μ w)/ν_μ² (d·out
    floats) from every machine and w back to it. One machine is EAGLE. With C = X W the error is multiplied by I − γ Ḡ,
    Ḡ the mean of A_μᵀA_μ/ν_μ²: with theory's constants these tend to the projections on the machines' row spaces, and
    the factor to 1 − α. `DistributedEAGLE(M, −1/3, 1/3, query=(−1, 1))` multiplies its query rows by the same matrices
    in the opposite order. A and K are rescaled each step, which changes only the exponents of the numbers: after some
    900 steps they would underflow.

    Args:
        machines: the rows are split evenly, in order.
        eta, gamma: as in EAGLE.
    """

    machines: int
    eta: float = THEORY[0]
    gamma: float = THEORY[1]

    def start(self, problem: Quadratic) -> dict[str, Any]:
        A, C = machine_rows("DistributedEstimation", problem, self.machines)
        rows = torch.eye(A.shape[2]).to(A).expand(*A.shape[:3], A.shape[2])
        return {"w": A.new_zeros(len(A), A.shape[-1], C.shape[-1]), "A": A, "rows": rows}

    def step(self, problem: Quadratic, state: dict[str, Any]) -> dict[str, Any]:
        first, labels = machine_rows("DistributedEstimation", problem, self.machines)
        A, rows, w = state["A"], state["rows"], state["w"]
        square = squared_norm(A)
        left = rows @ (labels - first @ w[:, None])
        turn = A @ A.mT * (self.eta / square)
        size = square.sqrt()
        return {
            "w": w + self.gamma * (A.mT @ left / square).mean(1),
            "A": (A + turn @ A) / size,
            "rows": (rows + turn @ rows) / size,
        }


def diverse_system(
    alpha: float, machines: int, d: int, kappa: float, prompts: int, seed: int, device: str = "cpu"
) -> System:
    """A consistent system of a given diversity, its machines of condition number κ each.

    Each of d // M orthogonal groups of M directions has one combination v_μ that machine μ does not see; the v_μ of a
    group have unit length and equal inner products, so that λ_max(mean_μ v_μ v_μᵀ) = 1 − α. Machine μ has one row for
    each direction that it does see, log-uniform singular values over [1/κ, 1] between Haar frames. At α = 1 every
    machine has d rows.

    Raises:
        ValueError: α is not in (0, 1 − 1/M] or 1, or d < M.
    """
    if alpha != 1 and not (0 < alpha <= 1 - 1 / machines and d >= machines):
        raise ValueError(
            f"diverse_system: {machines} machines and d={d} give α = 1, or 0 < α ≤ {1 - 1 / machines:.3g} with d at "
            f"least {machines}; α={alpha} is neither"
        )
    generator = torch.Generator().manual_seed(seed)
    turn = haar(prompts, d, generator)
    rows = [_machine(seen @ turn, kappa, generator) for seen in _seen(alpha, machines, d)]
    return consistent(torch.cat(rows, 1).to(device), seed)


def diversity(A: Float[Tensor, "prompt n d"], machines: int) -> Float[Tensor, "prompt"]:
    """α of each prompt, from the singular vectors of the machines' rows."""
    own = A.unflatten(1, (machines, -1))
    values, basis = torch.linalg.svd(own, full_matrices=False)[1:]
    kept = (values > 1e-10 * values[..., :1]).to(A)[..., None] * basis
    mean = torch.linalg.eigvalsh((kept.mT @ kept).mean(1))
    return torch.where(mean > 1e-10, mean, torch.inf).amin(-1)


def _seen(alpha: float, machines: int, d: int) -> list[Float[Tensor, "direction d"]]:
    """An orthonormal basis of what each machine sees, before the turn of all directions."""
    if alpha == 1:
        return [torch.eye(d, dtype=torch.float64)] * machines
    inner = (machines * (1 - alpha) - 1) / (machines - 1)
    gram = torch.full((machines, machines), inner, dtype=torch.float64).fill_diagonal_(1)
    values, vectors = torch.linalg.eigh(gram)
    unseen = vectors * values.clamp(min=0).sqrt()
    copies = d // machines
    blocks = [torch.block_diag(*[row[None]] * copies) for row in unseen]
    padded = [torch.nn.functional.pad(block, (0, d - copies * machines)) for block in blocks]
    return [torch.linalg.svd(block)[2][copies:] for block in padded]


def _machine(
    basis: Float[Tensor, "prompt direction d"], kappa: float, generator: torch.Generator
) -> Float[Tensor, "prompt direction d"]:
    """Rows whose row space is that of the basis."""
    prompts, count = basis.shape[:2]
    exponents = torch.rand(prompts, count, generator=generator, dtype=torch.float64)
    exponents[:, 0], exponents[:, -1] = 0, 1
    left, right = (haar(prompts, count, generator) for _ in range(2))
    return left * (kappa**-exponents)[:, None] @ right.mT @ basis


def haar(prompts: int, size: int, generator: torch.Generator) -> Float[Tensor, "prompt size size"]:
    """Orthogonal matrices; QR with the signs of R's diagonal taken out."""
    Q, R = torch.linalg.qr(torch.randn(prompts, size, size, generator=generator, dtype=torch.float64))
    return Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]
