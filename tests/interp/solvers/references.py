"""The same iterates by other roads: libraries, residual polynomials, powers of matrices. Nothing of interp is used."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, SGDRegressor

Reference = Callable[[Any, int], np.ndarray]


def over_batch(one: Callable[..., np.ndarray]) -> Callable[[Any, int], np.ndarray]:
    """A reference of one prompt (G, moment, problem, prompt, steps) → [step, d, out], for the whole batch."""

    def run(problem: Any, steps: int) -> np.ndarray:
        prompts = zip(problem.G.numpy(), problem.moment.numpy(), strict=True)
        return np.stack([one(G, b, problem, i, steps) for i, (G, b) in enumerate(prompts)], axis=1)

    return run


def polynomial(residual: Callable[[np.ndarray, int], np.ndarray]) -> Reference:
    """w_k = w* − residual_k(G) w*; `residual` gets the eigenvalues and the step."""

    def one(G, b, problem, prompt, steps):
        g, U = np.linalg.eigh(G)
        solution = U.T @ np.linalg.solve(G, b)
        return np.stack([U @ ((1 - residual(g, k))[:, None] * solution) for k in range(steps + 1)])

    return over_batch(one)


def products(factors: Callable[[np.ndarray], Iterable[np.ndarray]]) -> Reference:
    """A residual polynomial given by its factors, layer by layer."""

    def residual(g: np.ndarray, k: int) -> np.ndarray:
        return np.prod([factor for factor, _ in zip(factors(g), range(k), strict=False)], axis=0) * np.ones_like(g)

    return polynomial(residual)


def momentum(eta: Any, beta: Any, nesterov: bool, inverse: Callable[[Any, int], np.ndarray] | None = None) -> Reference:
    """Powers of the 2 × 2 companion matrix on every eigenvalue of P⁻¹G; η and β may be functions of the eigenvalues."""

    def one(G, b, problem, prompt, steps):
        P_inverse = np.eye(len(G)) if inverse is None else inverse(problem, prompt)
        g, V = np.linalg.eig(P_inverse @ G)
        solution = np.linalg.solve(V, np.linalg.solve(G, b))
        step = eta(g) if callable(eta) else eta
        keep = beta(g) if callable(beta) else beta
        contraction = 1 - step * g
        upper = (1 + keep) * contraction if nesterov else contraction + keep
        lower = -keep * (contraction if nesterov else np.ones_like(g))
        iterates = []
        for k in range(steps + 1):
            errors = [
                (np.linalg.matrix_power([[u, v], [1, 0]], k) @ [1, 1])[0] for u, v in zip(upper, lower, strict=True)
            ]
            iterates.append(V @ ((1 - np.array(errors))[:, None] * solution))
        return np.stack(iterates)

    return over_batch(one)


def stationary(matrices: Callable[[Any, int, int], np.ndarray]) -> Reference:
    """w_k = w* − Π (I − M_l G) w*; `matrices` gets problem, prompt, layer."""

    def one(G, b, problem, prompt, steps):
        solution = error = np.linalg.solve(G, b)
        iterates = [solution - error]
        for layer in range(steps):
            error = (np.eye(len(G)) - matrices(problem, prompt, layer) @ G) @ error
            iterates.append(solution - error)
        return np.stack(iterates)

    return over_batch(one)


def torch_optimiser(**settings: float) -> Reference:
    """torch.optim.SGD on the quadratic itself."""

    def run(problem: Any, steps: int) -> np.ndarray:
        w = torch.zeros_like(problem.moment, requires_grad=True)
        optimiser = torch.optim.SGD([w], **settings)
        iterates = [w.detach().clone()]
        for _ in range(steps):
            optimiser.zero_grad()
            (0.5 * (w * (problem.G @ w)).sum() - (w * problem.moment).sum()).backward()
            optimiser.step()
            iterates.append(w.detach().clone())
        return torch.stack(iterates).numpy()

    return run


def scipy_cg(inverse: Callable[[Any, int], np.ndarray] | None = None) -> Reference:
    def one(G, b, problem, prompt, steps):
        M = None if inverse is None else inverse(problem, prompt)
        columns = []
        for column in b.T:
            seen = [np.zeros_like(column)]
            scipy.sparse.linalg.cg(
                G, column, rtol=0, maxiter=steps, M=M, callback=lambda x, seen=seen: seen.append(x.copy())
            )
            columns.append(seen)
        return np.moveaxis(np.array(columns), 0, -1)

    return over_batch(one)


def line_search(G, b, problem, prompt, steps):
    """The step along the residual by least squares in the rows, ½‖A(w + ηr) − C‖²."""
    A, C = problem.A[prompt].numpy(), problem.C[prompt].numpy()
    iterates = [np.zeros_like(b)]
    for _ in range(steps):
        w = iterates[-1].copy()
        for out in range(C.shape[1]):
            error = C[:, out] - A @ w[:, out]
            descent = A.T @ error
            w[:, out] += np.linalg.lstsq((A @ descent)[:, None], error, rcond=None)[0][0] * descent
        iterates.append(w)
    return np.stack(iterates)


def at_once(solution: Callable[[Any, int], np.ndarray]) -> Reference:
    """0, and then the solution by a library."""

    def one(G, b, problem, prompt, steps):
        return np.stack([np.zeros_like(b)] + [solution(problem, prompt)] * steps)

    return over_batch(one)


def least_squares(problem: Any, prompt: int) -> np.ndarray:
    return np.linalg.lstsq(problem.A[prompt].numpy(), problem.C[prompt].numpy(), rcond=1e-10)[0]


def sklearn_ridge(problem: Any, prompt: int) -> np.ndarray:
    model = Ridge(alpha=problem.lam, fit_intercept=False, solver="svd")
    return model.fit(problem.A[prompt].numpy(), problem.C[prompt].numpy()).coef_.T


def sklearn_kernel_ridge(problem: Any, prompt: int) -> np.ndarray:
    return KernelRidge(alpha=problem.lam, kernel="precomputed").fit(problem.K[prompt], problem.y[prompt]).dual_coef_


def pseudo_inverse(problem: Any, prompt: int) -> np.ndarray:
    return np.linalg.pinv(problem.A[prompt].numpy(), rcond=1e-10) @ problem.C[prompt].numpy()


def leading_inverse(rank: int) -> Callable[[Any, int], np.ndarray]:
    """A⁺ C with the leading singular triples of A only."""

    def solution(problem, prompt):
        U, sigma, V = np.linalg.svd(problem.A[prompt].numpy())
        return (V[:rank].T / sigma[:rank]) @ U[:, :rank].T @ problem.C[prompt].numpy()

    return solution


def leading_components(rank: int, damping: float) -> Reference:
    """(1 − (λ/(σ² + λ))^k)/σ on the leading singular triples of A."""

    def one(G, b, problem, prompt, steps):
        U, sigma, V = np.linalg.svd(problem.A[prompt].numpy(), full_matrices=False)
        U, sigma, V = U[:, :rank], sigma[:rank], V[:rank]
        left = [(damping / (sigma**2 + damping)) ** k for k in range(steps + 1)]
        target = U.T @ problem.C[prompt].numpy()
        return np.stack([V.T @ (((1 - r) / sigma)[:, None] * target) for r in left])

    return over_batch(one)


def sgd_regressor(step_size: float) -> Reference:
    """scikit-learn's online least squares, a row at a time."""

    def one(G, b, problem, prompt, steps):
        A, C = problem.A[prompt].numpy(), problem.C[prompt].numpy()
        columns = []
        for labels in C.T:
            model = SGDRegressor(
                penalty=None, learning_rate="constant", eta0=step_size, fit_intercept=False, shuffle=False, tol=None
            )
            seen = [np.zeros(A.shape[1])]
            for k in range(steps):
                seen.append(model.partial_fit(A[k : k + 1], labels[k : k + 1]).coef_.copy())
            columns.append(seen)
        return np.moveaxis(np.array(columns), 0, -1)

    return over_batch(one)


def ridge_of_prefixes(penalty: float, forgetting: float) -> Reference:
    """scikit-learn's ridge on the first k rows, with weights f^(k − i) and penalty δ f^k."""

    def one(G, b, problem, prompt, steps):
        A, C = problem.A[prompt].numpy(), problem.C[prompt].numpy()
        iterates = [np.zeros_like(b)]
        for k in range(1, steps + 1):
            model = Ridge(alpha=penalty * forgetting**k, fit_intercept=False, solver="cholesky")
            iterates.append(model.fit(A[:k], C[:k], sample_weight=forgetting ** np.arange(k - 1.0, -1, -1)).coef_.T)
        return np.stack(iterates)

    return over_batch(one)
