"""The direction of imports: analyses → models → interp.layout, interp.kernels; analyses → interp; interp → nobody."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "interp": ("models", "analyses", "transformer_lens", "matplotlib"),
    "models": ("analyses", "matplotlib"),
}
VOCABULARY = ("interp.layout", "interp.kernels", "interp.covariance")


def imports(package: str) -> list[tuple[Path, str]]:
    found = []
    for file in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found += [(file, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports relatively"
                found += [(file, node.module or "")]
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_import_runs_the_wrong_way(package: str):
    wrong = [(file.name, name) for file, name in imports(package) if name.split(".")[0] in FORBIDDEN[package]]
    assert imports(package) and wrong == []


def test_models_know_only_the_vocabulary_of_interp():
    names = {name for _, name in imports("models") if name.split(".")[0] == "interp"}
    assert names and names <= set(VOCABULARY)
