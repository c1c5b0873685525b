"""The recipes on functions of Gaussian processes (arXiv 2605.08475): softmax and linear attention."""

from dataclasses import replace

from interp.kernels import AttentionKernel
from models.config import TransformerConfig
from models.prompts import GaussianProcess
from models.transformer_recipe import TransformerRecipe

SOFTMAX = AttentionKernel("exp", "sum", "sqrt_d_head")

_ONE_HEAD = TransformerConfig(
    n_layers=6,
    n_heads=1,
    d_model=32,
    d_head=32,
    kernel=SOFTMAX,
    attn_only=False,
    d_mlp=128,
    act_fn="gelu",
    normalization_type="LN",
    use_biases=True,
    d_in=2,
    d_out=1,
)

_SOFTMAX = TransformerRecipe(
    name="gp-softmax",
    about="Softmax attention on functions of a Gaussian process: RBF of lengthscale 0.3 on [−1, 1], 1 to 32 points.",
    family=GaussianProcess(),
    architecture=_ONE_HEAD,
    shortest=1,
    queries=16,
    steps=12000,
    rate=2e-3,
    batch=64,
    warmup=300,
    final_rate=1e-2,
    betas=(0.9, 0.98),
    eps=1e-8,
    weight_decay=0.01,
    clip=1.0,
)

PROCESSES = (
    _SOFTMAX,
    replace(
        _SOFTMAX,
        name="gp-softmax-d2",
        about="The setting of gp-softmax in two dimensions, lengthscale 0.5.",
        family=GaussianProcess(d=2, lengthscale=0.5),
        architecture=replace(_ONE_HEAD, d_in=3),
    ),
    replace(
        _SOFTMAX,
        name="gp-linear",
        about="The setting of gp-softmax with linear attention in place of softmax.",
        architecture=replace(_ONE_HEAD, kernel=AttentionKernel(scale="n")),
    ),
    replace(
        _SOFTMAX,
        name="gp-laplace",
        about="The setting of gp-softmax on functions of the Laplace kernel.",
        family=GaussianProcess(covariance="laplace"),
    ),
    replace(
        _SOFTMAX,
        name="gp-gpt2",
        about="The prompts of gp-softmax in the form of GPT-2: inputs and labels alternate, causal, learned positions.",
        family=GaussianProcess(token_format="alternating"),
        architecture=replace(
            _ONE_HEAD,
            n_heads=2,
            d_model=64,
            positional_embedding_type="standard",
            n_ctx=65,
            d_mlp=256,
        ),
        shortest=None,
        queries=1,
        steps=6000,
        rate=1e-3,
    ),
)
