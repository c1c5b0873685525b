"""Networks that play a known trajectory are named; what resembles nothing is not; bad input is refused."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from interp.comparison import (
    CANDIDATES,
    OWN,
    PRECONDITIONED_RICHARDSON,
    TO_KRR,
    Comparison,
    Control,
    Draws,
    Problems,
    Rules,
    choose,
    compare,
    fan,
    measure,
)
from interp.gaussian_process import posterior
from tests.interp.comparison.cases import FAMILY, SMALL, draw, noise, player, read

K, LAM = FAMILY.kernel, FAMILY.lam
NOISE = [noise(1), noise(2)]


def against(model: Any, **options: Any) -> Comparison:
    return compare(model, draw, K, LAM, **{"untrained": NOISE, "read": read, "readout": OWN, **SMALL, **options})


@pytest.mark.parametrize("name", list(CANDIDATES))
def test_every_trajectory_is_named_by_every_metric(name: str):
    found = against(player(name))
    assert found.names == (name,) and found.metric == "A-lin"
    for metric in ("A", "A-lin"):
        by = found.judged[OWN][metric]
        assert by.best == name and by.distance[name] < 1e-10 and not by.refused
        assert by.assigned[name].steps == (1, 2, 3, 4)
        assert all(margin.interval[0] > 0 for margin in by.margins.values())
    assert found.judged[OWN]["C"].distance[name] < 1e-10


def test_a_geometric_map_is_found_by_a_and_refused_by_a_lin():
    found = against(player(PRECONDITIONED_RICHARDSON, (1, 3, 9, 20)))
    assert found.names == (PRECONDITIONED_RICHARDSON,) and found.metric == "A"
    by = found.judged[OWN]
    assert by["A"].assigned[PRECONDITIONED_RICHARDSON].steps == (1, 3, 9, 20)
    assert any("no fixed pace" in reason for reason in by["A-lin"].refused) and by["A-lin"].verdict == "none"
    assert found.contrast("C", PRECONDITIONED_RICHARDSON, "CG").interval[0] > 0


def test_what_resembles_nothing_is_none_and_the_control_must_be_recognised():
    control = Control("player", player("PCG"), Draws(draw, 24, 24, 4), K, LAM, "PCG", read)
    found = against(noise(3), control=control)
    assert found.verdict == "none" and found.metric is None and found.built is not None
    assert found.built.behaves(OWN, "A-lin") and "not run" not in str(found)
    wrong = Control("player", player("PCG"), Draws(draw, 24, 24, 4), K, LAM, "Nesterov", read)
    spoilt = against(player("PCG"), control=wrong)
    assert spoilt.verdict == "none" and any("does not count" in note for note in spoilt.notes)
    assert against(player("PCG"), control=control).names == ("PCG",)


def test_random_networks_that_are_named_spoil_the_verdict():
    found = against(player("PCG"), untrained=[player("PCG"), noise(2)])
    assert found.verdict == "none"


def test_probes_see_through_an_unknown_scale_and_the_result_prints():
    found = compare(player("CG"), draw, K, LAM, untrained=NOISE, **SMALL)
    assert set(found.measured) == {"probe to target", TO_KRR}  # the player has no read-out of its own
    assert found.judged[TO_KRR]["A"].best in ("CG", "PCG")
    text = str(found)
    assert "positive control was not run" in text and "random network 1" in text
    assert max(map(len, text.splitlines())) <= 140
    values = json.loads(json.dumps(found.to_dict()))
    assert values["verdict"] == found.verdict and values["controls"]["built"] is None
    assert len(values["readouts"][TO_KRR]["layer_by_step"]["CG"][0]) == SMALL["steps"] + 1


def test_distances_to_krr_and_to_f_are_those_of_numpy():
    draws = Draws(draw, 24, 24, 2)
    solvers = {"CG": CANDIDATES["CG"]}
    found = measure(player("CG", (1, 2)), draws, K, LAM, solvers, 4, read)[OWN]
    test = draws.group(1)[1]
    R = posterior(K, LAM, test.x, test.y, test.queries).mean.numpy()
    played = player("CG", (1, 2))._predictions(test.tokens)[1].numpy()
    f = test.target.numpy()
    assert found.to_krr[1, 1].item() == pytest.approx(np.sqrt(((played - R) ** 2).sum() / (R**2).sum()), rel=1e-10)
    assert found.to_target[1, 1].item() == pytest.approx(np.sqrt(((played - f) ** 2).sum() / (f**2).sum()), rel=1e-10)
    assert found.krr_to_target[1].item() == pytest.approx(np.sqrt(((R - f) ** 2).sum() / (f**2).sum()), rel=1e-10)


def test_scaled_labels_change_nothing():
    def scaled(count: int, seed: int) -> Problems:
        drawn = Problems.of(draw(count, seed))
        tokens = drawn.tokens * torch.tensor([1.0, 5.0])
        return Problems(tokens, drawn.x, 5 * drawn.y, drawn.queries, 5 * drawn.target)

    args = K, LAM, CANDIDATES, 24, read
    plain, other = (measure(player("Nesterov"), Draws(source, 24, 24, 2), *args) for source in (draw, scaled))
    for readout in plain:
        torch.testing.assert_close(plain[readout].to_krr, other[readout].to_krr, rtol=1e-6, atol=1e-9)
        for metric in ("A", "A-lin", "C"):
            for name, values in plain[readout].values(metric).items():
                torch.testing.assert_close(values, other[readout].values(metric)[name], rtol=1e-6, atol=1e-8)


def test_given_prompts_are_cut_into_groups():
    draws = Draws(FAMILY.sample(41, seed=0), groups=4)
    train, parts = draws.group(0)[0], [draws.group(index)[1] for index in range(4)]
    assert train.count == 20 and sum(part.count for part in parts) == 21
    torch.testing.assert_close(torch.cat([train.tokens, *[part.tokens for part in parts]]), draws.source.tokens)


def test_fan_matches_krr_when_a_solver_has_converged():
    found = fan(player("CG", (1, 12)), lambda n: draw, (12,), K, LAM, steps=(1, 12), readout=OWN, read=read, test=24)
    assert found.layers[1][0] == pytest.approx(found.krr[0], abs=1e-6)
    assert found.solvers["CG"][0][0] == pytest.approx(found.layers[0][0], abs=1e-12)
    assert found.to_dict()["lengths"] == [12]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0.0}, "must be positive"),
        ({"lam": -1.0}, "must be positive"),
        ({"seeds": 1}, "no spread"),
        ({"steps": 3}, "at least the model's 4 layers"),
        ({"readout": "colour"}, "unknown readout"),
        ({"solvers": {"mine": 3}}, "no start and step"),
        ({"solvers": {}}, "at least one solver"),
        ({"untrained": [noise(1)]}, "too few"),
        ({"prompts": FAMILY.sample(1, seed=0)}, "too few"),
        ({"prompts": object()}, "the prompts have no"),
        ({"read": lambda z: z}, "gives the shape"),
        ({"read": lambda z: read(z) / 0}, "NaN or inf"),
        ({"read": None, "readout": OWN}, "needs read="),
        ({"rules": {"share": 2.0}}, "share"),
    ],
)
def test_bad_input_is_one_sentence(options: dict[str, Any], message: str, as_users_run: None):
    settings = {"prompts": draw, "lam": LAM, "read": read, "untrained": NOISE, **SMALL, **options}
    with pytest.raises(ValueError, match=message):
        if "rules" in settings:
            settings["rules"] = Rules(**settings["rules"])
        compare(player("CG"), settings.pop("prompts"), K, settings.pop("lam"), **settings)


def test_unknown_names_and_streams_that_are_not_finite():
    with pytest.raises(ValueError, match="known: preconditioned Richardson"):
        choose(["Gauss–Seidel"])
    assert list(choose(["PCG", "CG"])) == ["PCG", "CG"]
    broken = player("CG")
    broken.blocks[2].hook_resid_post.add_perma_hook(lambda z, hook: z / 0)
    with pytest.raises(ValueError, match=r"blocks\.2\.hook_resid_post"):
        against(broken)
    drawn = Problems.of(draw(4, 0))
    with pytest.raises(ValueError, match="do not fit"):
        Problems(drawn.tokens, drawn.x, drawn.y[:, 1:], drawn.queries, drawn.target)
    with pytest.raises(ValueError, match="NaN or inf"):
        Problems(drawn.tokens, drawn.x, drawn.y / 0, drawn.queries, drawn.target)
