"""The control without the model, and what a report says of its controls and of its reading."""

import torch

from interp.hooks import hook_name
from interp.probes import Reading, probe, probe_all
from models import zoo
from models.prompts import family_from_dict
from tests.interp.probes.cases import scalar_prompts, softmax


def test_the_prompt_alone_tells_moments_where_its_entries_cannot():
    model = zoo.load("linreg-softmax").double()
    prompts = family_from_dict(zoo.metadata("linreg-softmax")["task"]).sample(400, seed=1)
    found = probe_all(
        model, prompts, ["w", "xty", "hessian"], [hook_name("resid_pre", 0)], reading="pooled", untrained=model
    )
    for target in ("xty", "hessian"):
        (layer,) = found[target].layers
        assert layer.prompt_only.value > 0.95 and layer.prompt_features == "second moments"
        assert not layer.above_controls and layer.to_dict()["prompt_features"] == "second moments"
    assert found["w"].layers[0].prompt_only.value > 0.5
    tokens, S = prompts.tokens[:3], torch.einsum("bti,btj->bij", prompts.tokens[:3, :-1], prompts.tokens[:3, :-1])
    seen = Reading("token").of_the_prompt(tokens, model.layout)
    torch.testing.assert_close(seen["entries"][:, 0], tokens.flatten(1))
    torch.testing.assert_close(seen["second moments"][:, 0, 1], S[:, 0, 1])


def test_notes_say_what_a_score_does_not_show():
    model, hook = softmax(), hook_name("resid_pre", 0)
    few = probe(model, scalar_prompts(60), "w", hook)
    assert [layer.hook for layer in few.layers] == [hook]
    for part in ("answers to unit queries", "only 15 prompts are held out", "one draw"):
        assert part in str(few) and sum(part in note for note in few.to_dict()["notes"]) == 1
    more = probe(model, scalar_prompts(80), "w", hook, reading="pooled", untrained=model, alphas=1.0)
    assert more.notes == () and more.layers[0].alpha is not None
