"""check_protocol: what is known of a model of someone else's before anything is concluded from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from interp.ablation.ablate import tokens_of
from interp.ablation.attention import OwnAttention, refuse_by_name
from interp.ablation.runs import Runs
from interp.hooks import capture, hook_name, is_transformer_lens, read_out, reads_vocabulary, run_with_hooks
from interp.protocol.continuous import Continuous
from interp.protocol.plain import NotRebuilt, plain_forward
from interp.protocol.processed import signs_of_processing
from interp.unrolling.circuits import check_unrollable
from interp.unrolling.kernel_operator import check_softmax

PARITY = {torch.float64: 1e-10, torch.float32: 1e-4}
LOOSE = 1e-2  # of other dtypes
FEW = 4  # prompts of a check
NOT_MOVED = "halved patterns move nothing: this model ignores edits of hook_pattern (or its attention writes nothing)"


@dataclass(frozen=True)
class ProtocolCheck:
    """What a model is, whether it computes what its weights say, and what can be asked of it.

    Args:
        kind: which class of which package.     dtype: of its weights.
        shape: layers, heads, widths.
        parity: largest gap between its output and that rebuilt from its weights, relative to the largest output; None
            where it was not rebuilt, and `why_no_parity` says why.
        allowed: the gap up to which they agree.
        moved: how far halving every attention pattern moves the output, relative; 0 means that edits are ignored.
        processed: signs that weights were processed on loading.
        asks: by analysis "" where it can be asked, else why not.
        notes: what else a reader should know.
    """

    kind: str
    dtype: str
    shape: Mapping[str, int]
    parity: float | None
    why_no_parity: str
    allowed: float
    moved: float
    processed: tuple[str, ...]
    asks: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Was the output rebuilt from the weights, and is it the same."""
        return self.parity is not None and self.parity <= self.allowed

    @property
    def takes_edits(self) -> bool:
        return self.moved > 0

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {size}" for name, size in self.shape.items())
        lines = [f"{self.kind}, {self.dtype}: {sizes}", f"parity     {self._parity()}"]
        moved = f"halving every pattern moves the output by {self.moved:.2g} of its size"
        lines.append(f"edits      {moved}" if self.takes_edits else f"edits      {NOT_MOVED}")
        lines.append(f"processed  {'; '.join(self.processed) or 'no sign of it'}")
        width = max(map(len, self.asks))
        lines += ["", "what can be asked", *(f"  {name:<{width}}  {why or 'yes'}" for name, why in self.asks.items())]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _parity(self) -> str:
        if self.parity is None:
            return f"not checked: {self.why_no_parity}"
        verdict = "agrees with" if self.agrees else "DIFFERS from"
        return f"{verdict} a plain pass rebuilt from its weights, {self.parity:.2g} (allowed {self.allowed:.0e})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": dict(self.shape),
            "parity": self.parity,
            "why_no_parity": self.why_no_parity,
            "allowed": self.allowed,
            "agrees": self.agrees,
            "moved": self.moved,
            "processed": list(self.processed),
            "asks": {name: {"possible": not why, "why_not": why} for name, why in self.asks.items()},
            "notes": list(self.notes),
        }


def check_protocol(model: Any, prompts: Any) -> ProtocolCheck:
    """The checks that come first, on a few prompts.

    Args:
        model: any hooked model: of this package, of TransformerLens, or the latter in `Continuous`.
        prompts: as the model takes them, tokens [prompt, token, …] or a value with `.tokens`.

    Raises:
        ValueError: no hooked model, prompts that it does not take, an output that is not finite.
    """
    tokens = tokens_of(model, prompts)[:FEW]
    cfg, weights = model.cfg, model.blocks[0].attn.W_Q
    with torch.no_grad():
        output, again = (run_with_hooks(model, tokens, []) for _ in range(2))
    if not output.isfinite().all():
        raise ValueError("check_protocol: the model's output holds NaN or inf on these prompts; give others")
    parity, why = _parity(model, tokens, output)
    moved = _moved(model, tokens, output)
    names = ("n_layers", "n_heads", "d_model", "d_head")
    notes = []
    if not torch.equal(output, again):
        notes.append("two passes differ: the model is random (dropout), and nothing is exact before model.eval()")
    if isinstance(model, Continuous):
        notes.append(f"prompts enter as the residual stream before block 0; answers are read by the {model.readout}")
    return ProtocolCheck(
        kind_of(model),
        str(weights.dtype).removeprefix("torch."),
        {name: getattr(cfg, name) for name in names},
        parity,
        why,
        PARITY.get(weights.dtype, LOOSE),
        moved,
        signs_of_processing(getattr(model, "foreign", model)),
        _asks(model, tokens, moved),
        tuple(notes),
    )


def kind_of(model: Any) -> str:
    """Class, package and version, and for a bridge what it wraps."""
    if isinstance(model, Continuous):
        return f"{kind_of(model.foreign)}, on rows of its residual stream" + (
            f", attention {model.cfg.kernel}" if model.swapped else ""
        )
    if not is_transformer_lens(model):
        return f"{type(model).__name__} of {type(model).__module__}"
    try:
        installed = version("transformer-lens")
    except PackageNotFoundError:
        installed = "(unknown version)"
    inner = getattr(model, "original_model", None)
    wraps = "" if inner is None else f" around a {type(inner).__name__}"
    return f"{type(model).__name__} of transformer-lens {installed}{wraps}"


def _parity(model: Any, tokens: Tensor, output: Tensor) -> tuple[float | None, str]:
    try:
        rebuilt = plain_forward(model, tokens)
    except (NotRebuilt, AttributeError) as error:
        return None, str(error) if isinstance(error, NotRebuilt) else f"a weight is not where it is expected ({error})"
    return ((rebuilt - output).abs().max() / output.abs().max().clamp(min=1e-300)).item(), ""


def _moved(model: Any, tokens: Tensor, output: Tensor) -> float:
    """The effect of halving every pattern."""
    halved = [(hook_name("pattern", layer), lambda pattern, hook: pattern / 2) for layer in range(model.cfg.n_layers)]
    with torch.no_grad():
        gap = (run_with_hooks(model, tokens, halved) - output).norm()
    return (gap / output.norm().clamp(min=1e-300)).item()


def _asks(model: Any, tokens: Tensor, moved: float) -> dict[str, str]:
    """Each analysis by the refusal that it would give itself."""
    refused = _why(lambda: refuse_by_name(model))
    if not refused and not moved:
        refused = f"{NOT_MOVED}, so nothing about its attention can be concluded from them"
    words = reads_vocabulary(model)
    regression = (
        f"it reads numbers of a vocabulary of {model.cfg.d_vocab}, and this is about regression prompts: give "
        "interp.protocol.Continuous(model, layout)"
        if words
        else ""
    )
    layout = "" if getattr(model, "layout", None) is not None else "with layout=…"
    return {
        "hooks, capture": "",
        "kernel swaps": refused or _why(lambda: _check_patterns(model, tokens)),
        "heads, MLPs, layers": refused,
        "early exits": refused or _why(lambda: _check_exits(model, tokens)),
        "probe": regression,
        "compare": regression,
        "unroll": regression or layout or _why(lambda: check_unrollable(model)),
        "kernel operators": regression or layout or _why(lambda: check_softmax(model, with_prompts=True)),
    }


def _why(check: Callable[[], Any]) -> str:
    try:
        check()
    except ValueError as error:
        return str(error)
    return ""


def _check_patterns(model: Any, tokens: Tensor) -> None:
    """Is the pattern the model's kernel of q and k in every layer."""
    own = OwnAttention.of(model)
    for layer in range(model.cfg.n_layers):
        names = [hook_name(point, layer) for point in ("q", "k", "pattern")]
        cache = capture(model, tokens, names)
        own.check(layer, *(cache[name] for name in names))


def _check_exits(model: Any, tokens: Tensor) -> None:
    """Does the read-out of the last stream give the output."""
    runs = Runs(model, tokens, reuse=False)
    with torch.no_grad():
        gap = (read_out(model, runs.stream[model.cfg.n_layers]) - runs.output).abs().max() / runs.output.abs().max()
    if not gap <= PARITY.get(runs.output.dtype, LOOSE):
        raise ValueError(f"unembed(ln_final(z)) of the last stream is not the output (off by {gap.item():.2g})")
