import json

import pytest

from interp.kernels import LEARNED, AttentionKernel
from models.config import TransformerConfig

SIZES = dict(n_layers=2, n_heads=1, d_model=5, d_head=3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(kernel=AttentionKernel("gaussian", "sum", "n"), attn_only=False, d_mlp=7, act_fn="gelu", init_std=0.1),
        dict(
            kernel=AttentionKernel(LEARNED),
            d_feature=4,
            d_in=3,
            d_out=2,
            normalization_type="LN",
            post_norm=True,
            use_biases=True,
        ),
    ],
)
def test_json_round_trip(settings: dict):
    cfg = TransformerConfig(**SIZES, **settings)
    assert TransformerConfig.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg


BAD = {
    "zero": (dict(n_layers=0), "n_layers must be a whole number of at least 1, got 0"),
    "truth": (dict(n_heads=True), "n_heads must be a whole number"),
    "activation": (dict(act_fn="tanh"), "unknown act_fn 'tanh'; known: 'relu', 'gelu', 'gelu_new'"),
    "norm": (dict(normalization_type="RMS"), "unknown normalization_type 'RMS'; known: None, 'LN'"),
    "post norm": (dict(post_norm=True), "post_norm=True has no effect without normalization_type"),
    "positions": (dict(positional_embedding_type="rotary"), "unknown positional_embedding_type 'rotary'; known: None"),
    "no d_mlp": (dict(attn_only=False), "attn_only=False needs d_mlp"),
    "d_mlp": (dict(d_mlp=4), "d_mlp=4 has no effect without attn_only=False"),
    "no n_ctx": (dict(positional_embedding_type="standard"), "needs n_ctx"),
    "n_ctx": (dict(n_ctx=4), "n_ctx=4 has no effect without positional_embedding_type"),
    "no d_feature": (dict(kernel={"similarity": LEARNED}), "the kernel 'learned' needs d_feature"),
    "d_feature": (dict(d_feature=4), "d_feature=4 has no effect without the kernel 'learned'"),
    "unknown": (dict(colour=1), "unknown setting 'colour'; known: act_fn, attn_only"),
    "kernel": (dict(kernel="softmax"), "'softmax' does not describe an attention kernel"),
    "kernel entry": (dict(kernel={"shape": 1}), "does not describe an attention kernel"),
    "similarity": (dict(kernel={"similarity": "cosine"}), "unknown kernel similarity 'cosine'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused(name: str):
    settings, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_dict(SIZES | settings)


@pytest.mark.parametrize("size", [1.5, "5", None])
def test_a_size_of_another_type_is_refused(size: object):
    cfg = TransformerConfig.__new__(TransformerConfig)  # past the type checker of the suite
    for key, value in TransformerConfig(**SIZES).__dict__.items():
        object.__setattr__(cfg, key, size if key == "d_model" else value)
    with pytest.raises(ValueError, match="d_model must be a whole number of at least 1, got"):
        cfg.__post_init__()


def test_a_missing_size_is_named():
    with pytest.raises(ValueError, match="the setting 'd_head' is missing"):
        TransformerConfig.from_dict({key: value for key, value in SIZES.items() if key != "d_head"})
