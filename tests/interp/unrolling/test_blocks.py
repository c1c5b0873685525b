import pytest
import torch

from interp.unrolling import describe_block

GENERATOR = torch.Generator().manual_seed(0)
EYE = torch.eye(5, dtype=torch.float64)
FRAME = torch.linalg.qr(torch.randn(5, 5, generator=GENERATOR, dtype=torch.float64))[0][:, :2]
FULL = torch.randn(5, 5, generator=GENERATOR, dtype=torch.float64)

CASES = {
    "zero": (0 * EYE, "zero", {}),
    "identity": (-1.5 * EYE, "identity", {"c": -1.5}),
    "diagonal": (torch.diag(torch.arange(1.0, 6)).double(), "diagonal", {"smallest": 1.0, "largest": 5.0}),
    "identity plus ones": (2 * EYE - 0.25, "identity_plus_ones", {"a": 2.0, "b": -0.25}),
    "projection": (-3 * FRAME @ FRAME.T, "projection", {"c": -3.0, "rank": 2}),
    "rank": (FRAME @ torch.tensor([[1.0, 0], [0, 4]]).double() @ FULL[:2], "rank", {"rank": 2}),
    "full": (FULL, "full", {}),
    "rectangular": (FULL[:3], "full", {}),
    "rectangular rank": (FULL[:, :1] @ FULL[:1, :3], "rank", {"rank": 1}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_class_and_numbers(name: str, noise: float):
    matrix, expected, numbers = CASES[name]
    generator = torch.Generator().manual_seed(1)
    noisy = matrix + noise * (matrix.norm() or 1) / 5 * torch.randn(
        matrix.shape, generator=generator, dtype=torch.float64
    )
    found = describe_block(noisy, tolerance=1e-2, scale=(matrix.norm().item() or 1.0))
    assert found.name == expected and found.residual <= 1e-2
    for key, value in numbers.items():
        assert found.numbers[key] == pytest.approx(value, abs=20 * noise + 1e-12)
    text = {"zero": "0", "identity": "·I", "projection": "·projection of rank", "identity_plus_ones": "11ᵀ"}
    assert text.get(expected, expected.split("_")[0]) in str(found)


def test_tolerance_decides():
    nearly = EYE + 0.02 * FULL / FULL.norm()
    assert describe_block(nearly, tolerance=0.05).name == "identity"
    assert describe_block(nearly, tolerance=1e-4).name == "full"


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        describe_block(EYE * float("nan"))


@pytest.mark.parametrize("options", [{"tolerance": -1.0}, {"scale": -1.0}])
def test_negative_tolerances_are_refused(options: dict[str, float]):
    with pytest.raises(ValueError, match="must be 0 or more"):
        describe_block(EYE, **options)
