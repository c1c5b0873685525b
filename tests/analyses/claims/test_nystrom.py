import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel

from analyses.claims.claim import Settings
from analyses.claims.criteria import CRITERIA
from analyses.claims.nystrom import DATA, Sizes, eagle_slices, measure_at, rbf, sklearn_slice
from interp.solvers import LeastSquares, Nystrom


@pytest.mark.parametrize("name", ["diabetes", "digits"])
def test_eagle_scikit_learn_and_the_solver_agree(name):
    points, gamma = rbf(name, 1.0, split=4, count=35)
    K = torch.as_tensor(rbf_kernel(points.numpy(), gamma=gamma))
    A, C = K[:20, :20], K[:20, 20:]
    expected = Nystrom().extrapolate(LeastSquares(A[None], C[None]))[0]
    assert torch.allclose(sklearn_slice(points, gamma, 20), expected, atol=1e-10)
    assert torch.allclose(eagle_slices(A, C, 100)[-1], expected, atol=1e-10)


def test_the_bandwidth_is_the_median_distance():
    points, gamma = rbf("diabetes", 2.0, split=0, count=30)
    distances = [float((a - b).norm()) for i, a in enumerate(points) for b in points[:i]]
    assert (distances := sorted(distances))[len(distances) // 2] == pytest.approx((1 / (2 * gamma)) ** 0.5 / 2)


def test_measurements_are_of_the_median_bandwidth(tmp_path):
    findings = measure_at(Sizes(landmarks=16, unseen=8, splits=2), Settings(seed=3))
    standard = [findings.details[f"{name}, 1 × median"] for name in DATA]
    assert findings.measurements["agreement"].value == max(of["distances"][-1] for row in standard for of in row)
    ratios = [of["errors"][-1] / of["reference"] for row in standard for of in row]
    assert findings.measurements["slice"].value == pytest.approx(max(ratios))
    assert set(findings.measurements) == set(CRITERIA["nystrom"])
    assert findings.draw is not None
    findings.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
