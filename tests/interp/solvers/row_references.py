"""Iterates by roads that act on rows: token matrices under attention masks, scalar recurrences, local problems."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tests.interp.solvers.references import Reference, over_batch


def eagle_factors(eta: float, gamma: float, fixed: bool = False):
    """1 − γ g p²/ν² of MATH §4, layer by layer, ν² the largest g p² (or 1)."""

    def factors(g: np.ndarray) -> Iterator[np.ndarray]:
        p = np.ones_like(g)
        while True:
            x = g * p**2
            unit = 1.0 if fixed else x.max()
            yield 1 - gamma * x / unit
            p = p * (1 + eta * x / unit)

    return factors


def scheduled_factors(eta: tuple[float, ...], gamma: tuple[float, ...], norms: tuple[float, ...]):
    """The same with coefficients and norms given."""

    def factors(g: np.ndarray) -> Iterator[np.ndarray]:
        p = np.ones_like(g)
        for e, c, norm in zip(eta, gamma, norms, strict=True):
            x = g * p**2 / norm**2
            yield 1 - c * x
            p = p * (1 + e * x)

    return factors


def triple_angle(g: np.ndarray, k: int) -> np.ndarray:
    """±T_{3^k}(σ)/(3^k σ), σ in units of ‖A‖: what T₃ conditioning leaves after k layers."""
    sigma = np.sqrt(g / g.max()).clip(max=1)
    return (-1) ** k * np.cos(3**k * np.arccos(sigma)) / (3**k * sigma)


def stream(seed: int, layer: int) -> torch.Generator:
    """The draws of a layer: NumPy hashes seed and layer."""
    words = np.random.SeedSequence([seed, layer]).generate_state(2)
    return torch.Generator().manual_seed(int(words[0]) + 2**32 * int(words[1]))


def power_norm(iterations: int, seed: int):
    """√‖G v‖ of the last unit vector v of so many power iterations on G, from a seeded normal vector a layer."""

    def norm(rows: np.ndarray, layer: int) -> float:
        v = torch.randn(rows.shape[1], 1, generator=stream(seed, layer), dtype=torch.float64).numpy()
        G = rows.T @ rows
        before = np.linalg.matrix_power(G, iterations - 1) @ v
        return float(np.linalg.norm(G @ before) / np.linalg.norm(before)) ** 0.5

    return norm


def spectral_norm(rows: np.ndarray, layer: int) -> float:
    return float(np.linalg.norm(rows, 2))


def attention(
    machines: int,
    query: tuple[float, float],
    average: bool,
    norms: list[float] | None = None,
    norm_of: Callable[[np.ndarray, int], float] = spectral_norm,
) -> Reference:
    """Theory steps on the token matrix [A C; I 0]: a context row sees its machine, a query row every context row."""

    def one(G, b, problem, prompt, steps):
        A, C = problem.A[prompt].numpy(), problem.C[prompt].numpy()
        n, d, out = *A.shape, C.shape[1]
        tokens = np.block([[A, C], [np.eye(d), np.zeros((d, out))]])
        owner = np.arange(n) // (n // machines)
        role = np.concatenate([np.zeros(n), np.ones(d)])[:, None]
        visible = np.concatenate([owner[:, None] == owner, np.ones((d, n), dtype=bool)])
        iterates = [np.zeros((d, out))]
        for layer in range(steps):
            rows = tokens[:n]
            own = [norm_of(rows[owner == m, :d], layer) for m in range(machines)]
            norm = np.array(own)[owner] if norms is None else np.full(n, norms[layer])
            scores = np.where(visible, tokens[:, :d] @ rows[:, :d].T, 0) / norm**2
            mixed = scores @ rows / np.where(role == 1, machines if average else 1, 1)
            eta, gamma = np.where(role == 1, query[0], -1 / 3), np.where(role == 1, query[1], 1.0)
            tokens = tokens + np.concatenate([eta * mixed[:, :d], -gamma * mixed[:, d:]], axis=1)
            iterates.append(-tokens[n:, d:])
        return np.stack(iterates)

    return over_batch(one)


def averaged_projections(machines: int, eta: float) -> Reference:
    """Conjugate gradients (Polak and Ribière) on the mean of V f(σ)² Vᵀ, f the conditioned singular values over their
    largest, and labels U f(σ)/σ Uᵀ C: every machine by its own singular value decomposition."""

    def one(G, b, problem, prompt, steps):
        shares = zip(
            np.split(problem.A[prompt].numpy(), machines), np.split(problem.C[prompt].numpy(), machines), strict=True
        )
        parts = []
        for A, C in shares:
            U, sigma, V = np.linalg.svd(A, full_matrices=False)
            parts.append((sigma.copy(), sigma, V, U.T @ C))
        columns = []
        for column in range(b.shape[1]):
            iterates, sizes = [np.zeros(len(b))], [sigma.copy() for sigma, *_ in parts]
            before, direction = None, np.zeros(len(b))
            for _ in range(steps):
                units = [size / size.max() for size in sizes]
                H = sum((V.T * f**2) @ V for f, (*_, V, _) in zip(units, parts, strict=True)) / machines
                seen = [V.T @ (f**2 / sigma * c[:, column]) for f, (_, sigma, V, c) in zip(units, parts, strict=True)]
                z = sum(seen) / machines - H @ iterates[-1]
                beta = 0.0 if before is None else max(0.0, (z - before) @ z / (before @ before))
                direction = z + beta * direction
                iterates.append(iterates[-1] + direction @ z / (direction @ H @ direction) * direction)
                before = z
                sizes = [
                    size * (1 + eta * f**2) if np.sum(f**2 - f**4) > 2**-26 else size
                    for size, f in zip(sizes, units, strict=True)
                ]
            columns.append(iterates)
        return np.moveaxis(np.array(columns), 0, -1)

    return over_batch(one)


def own_preconditioners(machines: int, eta: float, gamma: float) -> Reference:
    """w + γ mean V (k²σ/ν²)(UᵀC − σ Vᵀw), k the factor by which conditioning has multiplied σ: every machine by its own
    singular value decomposition."""

    def one(G, b, problem, prompt, steps):
        A, C = (np.split(u[prompt].numpy(), machines) for u in (problem.A, problem.C))
        parts = [np.linalg.svd(rows, full_matrices=False) for rows in A]
        factors = [np.ones_like(sigma) for _, sigma, _ in parts]
        iterates = [np.zeros_like(b)]
        for _ in range(steps):
            moves = []
            for machine, ((U, sigma, V), labels) in enumerate(zip(parts, C, strict=True)):
                k = factors[machine]
                f = (k * sigma / (k * sigma).max()) ** 2
                moves.append(V.T @ ((f / sigma)[:, None] * (U.T @ labels - sigma[:, None] * (V @ iterates[-1]))))
                factors[machine] = k * (1 + eta * f)
            iterates.append(iterates[-1] + gamma * sum(moves) / machines)
        return np.stack(iterates)

    return over_batch(one)


def sketched_attention(rank: int, point: tuple[float, float], seed: int) -> Reference:
    """z + z Q S V/ν² on the token matrix [A C; I 0] with Q = diag(S Sᵀ, 0), V = diag(η I, −γ I): a head of rank r."""

    def one(G, b, problem, prompt, steps):
        A, C = problem.A[prompt].numpy(), problem.C[prompt].numpy()
        (n, d), out = A.shape, C.shape[1]
        tokens = np.block([[A, C], [np.eye(d), np.zeros((d, out))]])
        V = np.diag([point[0]] * d + [-point[1]] * out)
        iterates = [np.zeros((d, out))]
        for layer in range(steps):
            normal = torch.randn(d, rank, generator=stream(seed, layer), dtype=torch.float64).numpy()
            projection = np.zeros((d + out, d + out))
            projection[:d, :d] = normal @ np.linalg.solve(normal.T @ normal, normal.T)
            context = tokens[:n]
            norm = np.linalg.norm(context[:, :d] @ projection[:d, :d], 2)
            tokens = tokens + tokens @ projection @ context.T @ context @ V / norm**2
            iterates.append(-tokens[n:, d:])
        return np.stack(iterates)

    return over_batch(one)


def local_problems(machines: int, regularisation: float, step_size: float) -> Reference:
    """DANE as defined: the minimiser of every machine's corrected problem, as least squares with extra rows."""

    def one(G, b, problem, prompt, steps):
        shares = list(
            zip(
                np.split(problem.A[prompt].numpy(), machines),
                np.split(problem.C[prompt].numpy(), machines),
                strict=True,
            )
        )
        w, iterates = np.zeros_like(b), [np.zeros_like(b)]
        root = np.sqrt(regularisation) * np.eye(len(b))
        for _ in range(steps):
            gradients = [A.T @ (A @ w - C) for A, C in shares]
            mean = sum(gradients) / machines
            solved = []
            for (A, C), own in zip(shares, gradients, strict=True):
                tilt = A @ np.linalg.lstsq(A.T @ A, own - step_size * mean, rcond=None)[0]
                stacked = np.concatenate([A, root]), np.concatenate([C + tilt, root @ w])
                solved.append(np.linalg.lstsq(*stacked, rcond=None)[0])
            w = sum(solved) / machines
            iterates.append(w)
        return np.stack(iterates)

    return over_batch(one)


def softmax_with_bos(problem: Any, steps: int) -> np.ndarray:
    """Preconditioned Richardson by softmax with BOS (MATH §6): α ← α + c − P⁻¹K α − p ⊙ α."""
    K, y, lam = problem.K.numpy(), problem.y.numpy(), problem.lam
    scores = np.concatenate([np.full((*K.shape[:2], 1), np.log(lam)), np.log(K)], axis=2)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    p, attention = weights[:, :, :1], weights[:, :, 1:]
    iterates = [np.zeros_like(y)]
    for _ in range(steps):
        alpha = iterates[-1]
        iterates.append(alpha + p * y / lam - attention @ alpha - p * alpha)
    return np.stack(iterates)


def kernel_descent(step_size: float) -> Reference:
    """f_k = y − (I − ηK)^k y at the context, and α = K⁻¹ f_k."""

    def one(G, b, problem, prompt, steps):
        K = problem.K[prompt].numpy()
        powers = [np.linalg.matrix_power(np.eye(len(K)) - step_size * K, k) for k in range(steps + 1)]
        return np.stack([np.linalg.solve(K, b - power @ b) for power in powers])

    return over_batch(one)
