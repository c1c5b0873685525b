import pytest
import torch

from analyses.claims.claim import Settings
from analyses.claims.systems import log_uniform
from analyses.claims.wording.corrections import loss_ratio, measure


@pytest.mark.parametrize("eta", [0.1, 0.7])
def test_the_sign_decides(eta):
    system = log_uniform(10.0, (12, 5), 3, seed=0)
    assert torch.allclose(loss_ratio(system, eta, 1.0, seed=1), torch.tensor((1 + eta) ** 2, dtype=torch.float64))
    assert torch.allclose(loss_ratio(system, eta, -1.0, seed=1), torch.tensor((1 - eta) ** 2, dtype=torch.float64))


def test_measured():
    findings = measure(3, Settings())
    assert findings.measurements["sign"].value == pytest.approx(4)
    low, high = findings.measurements["rate"].interval
    assert low <= findings.measurements["rate"].value <= high < 1.5
    assert "as written" in findings.table
