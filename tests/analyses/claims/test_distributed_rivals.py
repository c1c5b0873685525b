import torch

from analyses.claims.distributed_rivals import tuned_dane
from analyses.claims.machines import diverse_system
from analyses.claims.systems import error_curve, first_below, log_uniform
from interp.solvers import DANE


def test_tuned_dane_is_the_solver_at_its_best_damping_and_step():
    system = log_uniform(30.0, (60, 6), 1, seed=0)
    tuned = tuned_dane(system, 3, 1e-6, 200)
    damping = float(tuned.setting) * float(torch.linalg.eigvalsh(system.problem.G)[0, -1]) / 3
    A = system.problem.A.unflatten(1, (3, -1))[0]
    inverse = torch.linalg.inv(A.mT @ A + damping * torch.eye(6).to(A)).mean(0)
    values = torch.linalg.eigvals(inverse @ system.problem.G[0] / 3).real
    best = float(2 / (values.max() + values.min()))
    curves = [error_curve(DANE(3, damping, step), system, 200, until=1e-6) for step in (1.0, best)]
    shortest = min(curves, key=len)
    assert torch.allclose(tuned.errors[: len(shortest)], shortest, atol=1e-10)
    assert int(first_below(tuned.errors, 1e-6)) == len(shortest) - 1


def test_no_setting_of_dane_beats_the_tuned_one():
    system = log_uniform(30.0, (90, 6), 2, seed=1)
    tuned = first_below(tuned_dane(system, 3, 1e-6, 300).errors, 1e-6)
    scale = float(torch.linalg.eigvalsh(system.problem.G)[:, -1].min()) / 3
    for damping in (1e-4, 1e-2, 1.0):
        curve = error_curve(DANE(3, damping * scale, 1.0), system, 300)
        assert (first_below(curve, 1e-6) >= tuned - 1).all()


def test_machines_without_a_full_rank_leave_only_damped_settings():
    tuned = tuned_dane(diverse_system(0.35, 3, 6, 10.0, 2, seed=0), 3, 1e-3, 500)
    assert (tuned.setting > 0).all()
    assert (tuned.errors[-1] <= 1e-3).all()
