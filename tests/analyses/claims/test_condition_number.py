"""Iterations over κ at small sizes."""

import torch

from analyses.claims.claim import Settings
from analyses.claims.condition_number import EAGLE_STEPS, KAPPAS, Sizes, measure_at
from analyses.claims.systems import first_below
from interp.solvers import THEORY
from tests.analyses.claims.recursion import errors_of_log_uniform

SMALL = Sizes(d=8, prompts=2, cg_steps=40)


def test_iterations_are_those_of_the_recursion(tmp_path):
    found = measure_at(SMALL, Settings())
    for kappa in KAPPAS:
        expected = first_below(errors_of_log_uniform(kappa, 8, 2, 0, THEORY, EAGLE_STEPS), 1e-6)
        assert found.details[f"{kappa:g}"]["EAGLE"] == expected.tolist()
    counts = torch.tensor([found.details[f"{kappa:g}"]["EAGLE"] for kappa in KAPPAS])
    assert (counts.diff(dim=0) > 0).all()
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_conjugate_gradients_that_do_not_arrive_are_said_to_be_a_bound():
    found = measure_at(Sizes(d=12, prompts=2, cg_steps=10), Settings())
    assert found.details["10000"]["CG"] == [11, 11]
    assert "2 of 2 had not arrived" in found.measurements["over-cg"].note
    assert "> 10" in found.table
