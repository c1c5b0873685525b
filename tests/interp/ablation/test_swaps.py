import warnings
from importlib.metadata import version

import pytest
import torch

from interp.ablation import Runs, ablate, check_pattern_edits, kernel_swaps, swap_kernel, swapped
from interp.ablation.swap import head_norms
from interp.hooks import capture, hook_name, run_with_hooks
from interp.kernels import KERNELS, AttentionKernel, kernel_named, register_kernel
from interp.layout import BlockLayout, Visibility
from models.config import TransformerConfig
from models.transformer import HookedTransformer

FOUR = int(version("transformer-lens").partition(".")[0]) >= 4


def ours(kernel: AttentionKernel, layers: int = 3) -> HookedTransformer:
    layout = BlockLayout.standard(x=3, y=1, n_query=2, visibility=Visibility("context", "context_and_self"))
    cfg = TransformerConfig(
        layers, 2, 4, 3, attn_only=False, d_mlp=5, kernel=kernel, init_std=0.4, normalization_type="LN", use_biases=True
    )
    return HookedTransformer(cfg, layout).double()


def prompts(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def foreign():
    """TransformerLens's own softmax model, by whichever class this version has."""
    settings = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 32, "n_ctx": 10, "d_vocab": 20}
    settings |= {"act_fn": "gelu", "seed": 0, "dtype": torch.float64}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformer_lens

        if FOUR:
            from transformer_lens.model_bridge import TransformerBridge

            return TransformerBridge.boot_native(transformer_lens.TransformerBridgeConfig(**settings)).double()
        config = transformer_lens.HookedTransformerConfig(**settings)
        return transformer_lens.HookedTransformer(config).double()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("scale", ["none", "sqrt_d_head", "n"])
def test_a_models_own_kernel_changes_nothing(name: str, scale: str):
    own = KERNELS[name]
    model = ours(AttentionKernel(own.similarity, own.normalisation, scale))
    assert (swapped(model, prompts(), name) - model(prompts())).abs().max() <= 1e-12


def test_a_second_name_is_the_same_kernel(monkeypatch):
    monkeypatch.delitem(KERNELS, "dot product", raising=False)
    register_kernel("dot product", AttentionKernel("linear"))
    model = ours(AttentionKernel("linear", "none", "n"))
    assert (swapped(model, prompts(), "dot product") - model(prompts())).abs().max() <= 1e-12
    with pytest.raises(ValueError, match="'dot product' is taken by linear"):
        register_kernel("dot product", AttentionKernel("relu"))
    del KERNELS["dot product"]


def test_softmax_to_softmax_on_transformer_lens():
    model, tokens = foreign(), torch.randint(0, 20, (3, 10), generator=torch.Generator().manual_seed(0))
    clean = model(tokens)
    assert (swapped(model, tokens, "softmax") - clean).abs().max() <= 1e-12
    assert (swapped(model, tokens, "linear") - clean).abs().max() > 1e-3
    runs = Runs(model, tokens)
    swap = swap_kernel(model, "relu", [1])
    assert runs.reuses
    assert torch.allclose(runs.predictions(swap), Runs(model, tokens, reuse=False).predictions(swap), atol=1e-12)


def test_a_swap_gives_the_model_of_the_other_kernel():
    softmax, linear = ours(KERNELS["softmax"]), ours(KERNELS["linear"])
    linear.load_state_dict(softmax.state_dict())
    assert torch.allclose(swapped(softmax, prompts(), "linear"), linear(prompts()), rtol=1e-12, atol=1e-12)


def test_one_head_of_one_layer():
    model, tokens = ours(KERNELS["softmax"]), prompts()
    name = hook_name("pattern", 1)
    swap = swap_kernel(model, "uniform", [1], [0])
    seen: list[torch.Tensor] = []
    run_with_hooks(model, tokens, [*swap.hooks(), (name, lambda p, hook: seen.append(p))])
    clean = capture(model, tokens, [name])[name]
    assert torch.equal(seen[0][:, 1], clean[:, 1])
    assert torch.allclose(seen[0][:, 0, :5, :5], torch.full((6, 5, 5), 0.2, dtype=torch.float64))


def test_rescaled_heads_write_as_much_as_before():
    model, tokens = ours(KERNELS["softmax"]), prompts()
    swap = swap_kernel(model, "exp", [0, 2], rescale=True, reference=tokens)
    names = [hook_name("z", layer) for layer in (0, 2)]
    seen: dict[str, torch.Tensor] = {}
    keep = [(name, lambda z, hook, name=name: seen.__setitem__(name, z)) for name in names]
    run_with_hooks(model, tokens, [*swap.hooks(), *keep])
    clean = capture(model, tokens, names)
    for layer, name in zip((0, 2), names, strict=True):
        assert torch.allclose(head_norms(model, layer, seen[name]), head_norms(model, layer, clean[name]), rtol=1e-10)


def test_the_prefix_is_reused_to_the_last_digit():
    model, tokens = ours(KERNELS["softmax"], layers=4), prompts()
    runs, whole = Runs(model, tokens), Runs(model, tokens, reuse=False)
    assert runs.reuses and not whole.reuses
    for swap in kernel_swaps(model, list(KERNELS)):
        first, second = runs.predictions(swap), whole.predictions(swap)
        assert (first - second).abs().max() <= 1e-12 * second.abs().max()


class Deaf(HookedTransformer):
    """Ignores what hooks return."""

    def run_with_hooks(self, tokens, *args, fwd_hooks=(), **kwargs):
        quiet = [(name, lambda value, hook, f=function: f(value, hook) and None) for name, function in fwd_hooks if 0]
        return super().run_with_hooks(tokens, fwd_hooks=quiet)


def test_a_model_that_ignores_edits_is_refused():
    model = ours(KERNELS["softmax"])
    deaf = Deaf(model.cfg, model.layout).double()
    with pytest.raises(ValueError, match="this model ignores edits of hook_pattern"):
        check_pattern_edits(deaf, prompts())
    with pytest.raises(ValueError, match="ignores edits of hook_pattern"):
        ablate(deaf, prompts(), kernel_swaps(deaf, ["linear"]))


def test_the_bridge_of_transformer_lens_3_is_refused_by_name(monkeypatch):
    bridge = type("TransformerBridge", (), {"__module__": "transformer_lens.model_bridge.bridge"})()
    monkeypatch.setattr("interp.ablation.attention.version", lambda name: "3.9.0")
    with pytest.raises(ValueError, match=r"TransformerBridge of transformer-lens 3\.9\.0 ignores edits"):
        check_pattern_edits(bridge, prompts())


def test_a_pattern_that_is_not_the_kernel_is_refused():
    model = ours(KERNELS["softmax"])
    other = swap_kernel(model, "linear")
    with pytest.raises(ValueError, match="the pattern of layer 0 is not softmax of hook_q and hook_k"):
        run_with_hooks(model, prompts(), [(hook_name("pattern", 0), lambda p, hook: p / 2), *other.hooks()])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: kernel_named("sofmax"), "unknown kernel 'sofmax'; did you mean softmax"),
        (lambda m: swap_kernel(m, "linear", [3]), "layer 3 is out of range: the model has layers 0 … 2"),
        (lambda m: swap_kernel(m, "linear", [0], [-1]), "head -1 is out of range"),
        (lambda m: swap_kernel(m, "linear", []), "the set of layers is empty"),
        (lambda m: swap_kernel(m, "linear", [1, 1]), "layer 1 is named twice"),
        (lambda m: swap_kernel(m, "linear", rescale=True), "rescale needs reference prompts"),
        (lambda m: kernel_swaps(m, []), "the set of kernels is empty"),
        (lambda m: ablate(m, prompts() * torch.nan), "the prompts hold NaN"),
        (lambda m: ablate(m, prompts(), []), "no interventions given"),
    ],
)
def test_bad_input(call, message: str):
    with pytest.raises(ValueError, match=message):
        call(ours(KERNELS["softmax"]))
