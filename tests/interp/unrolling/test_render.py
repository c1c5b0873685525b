import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.mathtext
import numpy as np
import pytest
import sympy
import torch

from interp import certify, unroll
from interp.layout import Visibility
from interp.unrolling import UpdateRule
from interp.unrolling.render import parse_text, polynomial, to_text
from models.prompts import LogUniformSpectrum
from tests.builders import eagle_model, random_model, random_tokens

FAMILY = LogUniformSpectrum(n=8, d=4, n_query=2, d_out=2, kappa=10.0)
MIXED = (Visibility("machine", "none"), Visibility("none", "context"))
ONE_A_MACHINE = (Visibility("machine 0", "machine 0"), Visibility("machine 1", "machine 1"))


@pytest.fixture(scope="module")
def eagle() -> UpdateRule:
    model = eagle_model([-1.3, -2.0, -3.0], [1.3, 2.0, 3.0], FAMILY.layout(sign=-1), noise=1e-3)
    return unroll(model, prompts=FAMILY.sample(64, seed=0))


def rules() -> dict[str, UpdateRule]:
    """Rules of every shape: deep (tables of several parts), several groups, one visibility after the other."""
    models = {
        "deep": random_model(3, 1, 12, 1, seed=0),
        "two groups": random_model(3, 2, 2, 2, seed=1, visibility=MIXED),
        "per n": random_model(3, 2, 2, 2, seed=2, scale="n"),
        **{
            rule: random_model(3, 2, 2, 1, seed=3, visibility=Visibility(rule, rule))
            for rule in ("causal", "all", "context_and_self")
        },
        "machine": random_model(3, 2, 2, 1, seed=3, visibility=Visibility("machine", "context")),
        "one head a machine": random_model(3, 2, 2, 2, seed=4, visibility=ONE_A_MACHINE),
        "a machine and all": random_model(
            3, 2, 2, 2, seed=5, visibility=(Visibility("machine 1", "none"), Visibility("context", "machine 0"))
        ),
    }
    return {name: unroll(model, prompts=random_tokens(model, 16, 6, seed=0)) for name, model in models.items()}


RULES = rules()


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("digits", [6, 17])
def test_text_parses_back_to_its_numbers(name: str, digits: int):
    rule = RULES[name]
    parsed = parse_text(to_text(rule, digits=digits))
    for level in ("words", "core"):
        for layer, found in zip(rule.layers, parsed[level], strict=True):
            expected = {word: float(f"{value:.{digits}g}") for word, value in layer.labelled(level).items()}
            assert found == expected
            if digits == 17:
                assert found == layer.labelled(level)


def test_a_formula_under_the_table_is_no_row_of_it(eagle: UpdateRule):
    """The EAGLE update has as many parts as this rule has layers."""
    assert "B ← B + η B AᵀA" in str(eagle) and eagle.depth == 3
    assert [len(words) for words in parse_text(str(eagle))["core"]] == [2, 2, 1]


@pytest.mark.parametrize("name", RULES)
def test_text_fits_100_columns(name: str):
    assert max(len(line) for line in str(RULES[name]).splitlines()) <= 100


def test_text_of_eagle_says_what_a_reader_needs(eagle: UpdateRule):
    text = str(eagle)
    assert max(len(line) for line in text.splitlines()) <= 100
    for phrase in ("the EAGLE update", "closed form", "p ← p (1 + η g p²)", "left out", "query rows: x", "Q_xx = "):
        assert phrase in text


def test_signs_that_are_not_eagles_are_not_called_eagle():
    model = eagle_model([-1.3, 0.4], [-1.3, 2.0], FAMILY.layout(sign=-1))
    assert "not with its signs" in str(unroll(model, prompts=FAMILY.sample(32, seed=0)))
    descent = eagle_model([0.0, 0.0], [0.9, 0.8], FAMILY.layout(sign=-1))
    text = str(unroll(descent, prompts=FAMILY.sample(32, seed=0)))
    assert "gradient descent" in text and "EAGLE" not in text


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("level", ["exact", "words", "core"])
def test_python_source_is_the_rule(name: str, level: str):
    rule = RULES[name]
    generator = torch.Generator().manual_seed(1)
    n = 8  # another number of context rows than the rule was fitted on
    tokens = 0.3 * torch.randn(5, n + 2, rule.layout.d_model, generator=generator, dtype=torch.float64)
    namespace: dict[str, object] = {}
    exec(compile(rule.python(level), "rule", "exec"), namespace)
    predicted = torch.from_numpy(namespace["predict"](tokens.numpy()))
    assert torch.allclose(predicted, rule.predict(tokens, level), rtol=1e-12, atol=1e-13)


def test_python_source_runs_alone(eagle: UpdateRule, tmp_path: Path):
    """In another process, in an empty folder, with neither torch nor this package."""
    tokens = FAMILY.sample(7, seed=3).tokens
    (tmp_path / "rule.py").write_text(eagle.python("exact"), encoding="utf-8")
    np.save(tmp_path / "tokens.npy", tokens.numpy())
    code = (
        "import sys; sys.modules['torch'] = sys.modules['interp'] = None\n"
        "import numpy as np, rule\nnp.save('out.npy', rule.predict(np.load('tokens.npy')))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert torch.allclose(torch.from_numpy(np.load(tmp_path / "out.npy")), eagle.predict(tokens, "exact"), rtol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_latex_is_balanced_and_its_lines_parse(name: str):
    latex = RULES[name].latex()
    assert latex.count("{") == latex.count("}") and latex.count(r"\begin") == latex.count(r"\end")
    parser = matplotlib.mathtext.MathTextParser("path")
    for line in latex.splitlines():
        if not line.startswith((r"\begin", r"\end")):
            body = re.sub(r"\\\\$", "", line).replace("&", "").replace(r"\text{", r"\mathrm{")
            assert parser.parse(f"${body}$").width > 0


def test_sympy_is_the_rule(eagle: UpdateRule):
    """Substitute numbers for the symbols of one layer and compare with the step."""
    z = next(eagle.states(FAMILY.sample(1, seed=0).tokens, "exact"))
    S = (z[:, :8].mT @ z[:, :8])[0]
    at = eagle.layout.slices
    values = {f"z_{name}": sympy.Matrix(z[0, -1:, block].tolist()) for name, block in at.items()}
    values |= {f"S_{p}{q}": sympy.Matrix(S[at[p], at[q]].tolist()) for p in at for q in at}
    for block, expression in eagle.sympy("words")[0].items():
        symbols = {symbol: values[symbol.name] for symbol in expression.atoms(sympy.MatrixSymbol)}
        number = torch.tensor(expression.xreplace(symbols).doit().tolist(), dtype=torch.float64)
        assert torch.allclose(number[0], (z + eagle.step(0, z, "words"))[0, -1, at[block]], atol=1e-12)
    with pytest.raises(ValueError, match="exact level is matrices"):
        eagle.sympy("exact")


def test_the_text_of_a_rule_with_two_groups_in_full():
    """Whose coefficients, per n, and which rows see what: nothing of it may go missing."""
    model = random_model(2, 1, 1, 2, seed=1, scale="n", visibility=MIXED)
    rule = unroll(model)
    lines = str(rule).splitlines()
    assert lines[:6] == [
        "update rule of 1 layer, attention kernel linear, scores × 1/n",
        "column blocks x (2); y (1)",
        "prediction = −y of the last 2 rows, the queries",
        "S_own = Σ zᵀz over the context rows of its own machine",
        "S = Σ zᵀz over all context rows",
        "every coefficient is divided by n, the number of context rows",
    ]
    latex, expressions = rule.latex(), rule.sympy()[0]
    assert "/n" in latex and "(query rows)" in latex
    assert sympy.Symbol("n", positive=True) in expressions["query: y"].free_symbols


def test_heads_that_serve_one_machine_say_which():
    rule = RULES["one head a machine"]
    text = str(rule)
    assert "S_1 = Σ zᵀz over the context rows of machine 1; 0 for the context rows of other machines" in text
    assert "layer 0 (context+query, S_1)" in text
    assert "context+query: z_x S_1_xy → y" in rule.layers[0].labelled("words")
    assert "S_{xx}^{(1)}" in rule.latex()
    names = {symbol.name for symbol in rule.sympy()[0]["x"].atoms(sympy.MatrixSymbol)}
    assert {"S_0_xx", "S_1_xx", "z_x"} <= names


def test_groups_of_one_role_are_one_equation():
    """Rows that see the context by one head and their machine by another: two sums, each under its own symbol."""
    visibility = (Visibility("context", "context"), Visibility("machine", "context"))
    rule = unroll(random_model(3, 2, 2, 2, seed=6, visibility=visibility))
    names = {symbol.name for symbol in rule.sympy()[0]["context: x"].atoms(sympy.MatrixSymbol)}
    assert {"S_xx", "S_own_xx"} <= names
    assert rule.latex().count(r"\text{layer 0:}\quad z_{x} &") == 2  # one equation for context rows, one for queries


def test_plain_values(eagle: UpdateRule):
    values = json.loads(json.dumps(eagle.to_dict(exact=True)))
    assert values["layers"][0]["words"] == eagle.layers[0].labelled("words")
    assert {"weights", "function"} <= set(values["layers"][0]["explained"])
    assert [len(c) for c in values["closed_form"]["r"]] == [1, 2, 5, 14]
    assert torch.equal(
        torch.tensor(values["layers"][1]["heads"][0]["Q"], dtype=torch.float64), eagle.layers[1].groups[0].group.Q
    )
    assert "heads" not in eagle.to_dict()["layers"][0]
    assert RULES["two groups"].to_dict()["closed_form"]["why_not"]


def test_certificate_prints_its_levels(eagle: UpdateRule):
    model = eagle_model([-1.3, -2.0, -3.0], [1.3, 2.0, 3.0], FAMILY.layout(sign=-1), noise=1e-3)
    text = str(certify(eagle, model, FAMILY.sample(32, seed=1)))
    assert max(len(line) for line in text.splitlines()) <= 100
    for phrase in ("exact", "words", "core", "fidelity of no update", "D − B A⁺C", "of 32 prompts"):
        assert phrase in text


@pytest.mark.parametrize(
    ("coefficients", "text"), [([1, -2.5], "1 − 2.5 g"), ([-1.0, 0.5, 3], "−1 + 0.5 g + 3 g^2"), ([], "0")]
)
def test_polynomials(coefficients: list[float], text: str):
    assert polynomial(coefficients) == text
