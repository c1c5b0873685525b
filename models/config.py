"""TransformerConfig: the shape of a model, complete enough to build it again."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from interp.kernels import LEARNED, AttentionKernel

_CHOICES = {
    "act_fn": ("relu", "gelu", "gelu_new"),
    "normalization_type": (None, "LN"),
    "positional_embedding_type": (None, "standard"),
}
_NEEDED_BY = {
    "d_mlp": ("attn_only=False", lambda cfg: not cfg.attn_only),
    "n_ctx": ("positional_embedding_type='standard'", lambda cfg: cfg.positional_embedding_type is not None),
    "d_feature": (f"the kernel {LEARNED!r}", lambda cfg: cfg.kernel.similarity == LEARNED),
}


@dataclass(frozen=True)
class TransformerConfig:
    """The architecture of a `HookedTransformer`, with TransformerLens's names where it has them.

    Args:
        n_layers, n_heads, d_model, d_head: as in TransformerLens.
        kernel: the attention kernel of every head.
        attn_only: no MLP; otherwise `d_mlp` hidden units with activation `act_fn` and biases: "relu", "gelu", or
            "gelu_new", GPT-2's approximation of gelu by tanh.
        normalization_type: None, or "LN" for layer norm before attention, MLP and a read-out `W_U`.
        post_norm: layer norm of the residual stream itself at the end of each block, in place of the one before `W_U`.
        use_biases: biases b_Q, b_K, b_V, b_O in the attention.
        positional_embedding_type: None, or "standard" for `n_ctx` learned positions.
        d_in: width of the tokens, read in by `W_E`, `b_E`; None if the tokens are the residual stream itself.
        d_out: width of the output, read out by `W_U`, `b_U`; None if the output is read through the layout.
        d_feature: width of the learned feature map of the kernel "learned".
        eps: added to the variance in layer norm.
        init_std: standard deviation of the initial weights; None for 0.8/√d_model.
        seed: of the initial weights.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    kernel: AttentionKernel = field(default_factory=AttentionKernel)
    attn_only: bool = True
    d_mlp: int | None = None
    act_fn: str = "relu"
    normalization_type: str | None = None
    post_norm: bool = False
    use_biases: bool = False
    positional_embedding_type: str | None = None
    n_ctx: int | None = None
    d_in: int | None = None
    d_out: int | None = None
    d_feature: int | None = None
    eps: float = 1e-5
    init_std: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_values()
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                listed = ", ".join(map(repr, known))
                raise ValueError(f"TransformerConfig: unknown {name} {getattr(self, name)!r}; known: {listed}")
        if self.post_norm and self.normalization_type is None:
            raise ValueError("TransformerConfig: post_norm=True has no effect without normalization_type")
        for name, (reason, needed) in _NEEDED_BY.items():
            given = getattr(self, name) is not None
            if needed(self) and not given:
                raise ValueError(f"TransformerConfig: {reason} needs {name}, which is not given")
            if given and not needed(self):
                raise ValueError(f"TransformerConfig: {name}={getattr(self, name)} has no effect without {reason}")

    def _check_sizes(self) -> None:
        required = ("n_layers", "n_heads", "d_model", "d_head")
        for name in (*required, "d_mlp", "n_ctx", "d_in", "d_out", "d_feature"):
            size = getattr(self, name)
            if size is None and name not in required:
                continue
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"TransformerConfig: {name} must be a whole number of at least 1, got {size!r}")

    def _check_values(self) -> None:
        checks = {
            "attn_only": (isinstance(self.attn_only, bool), "true or false"),
            "use_biases": (isinstance(self.use_biases, bool), "true or false"),
            "post_norm": (isinstance(self.post_norm, bool), "true or false"),
            "eps": (_is_number(self.eps) and self.eps > 0, "a positive number"),
            "init_std": (
                self.init_std is None or (_is_number(self.init_std) and self.init_std >= 0),
                "0 or more, or None",
            ),
            "seed": (isinstance(self.seed, int), "a whole number"),
        }
        for name, (right, expected) in checks.items():
            if not right:
                raise ValueError(f"TransformerConfig: {name} must be {expected}, got {getattr(self, name)!r}")

    @property
    def token_width(self) -> int:
        """The number of columns of the tokens."""
        return self.d_model if self.d_in is None else self.d_in

    @property
    def layout_width(self) -> int:
        """The number of columns the layout describes.

        The residual stream's, if tokens or output are read straight from it; otherwise (read-in and read-out both
        learned) the tokens'.
        """
        return self.d_model if self.d_in is None or self.d_out is None else self.d_in

    @property
    def is_linear_attention(self) -> bool:
        """Is every layer a cubic map of tokens that are the residual stream: attention only, a linear kernel, no
        read-in or read-out, biases, norms or positions."""
        plain = self.attn_only and self.d_in is None and self.d_out is None and not self.use_biases
        unnormed = self.normalization_type is None and self.positional_embedding_type is None
        return self.kernel.is_linear and plain and unnormed

    @property
    def device(self) -> None:
        """No device: a model lives where it was moved (TransformerLens 3.9 asks for it to make empty tensors)."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TransformerConfig":
        """The inverse of `to_dict`."""
        known = {f.name for f in fields(cls)}
        required = {"n_layers", "n_heads", "d_model", "d_head"}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"TransformerConfig: unknown setting {unknown[0]!r}; known: {', '.join(sorted(known))}")
        if missing := sorted(required - set(values)):
            raise ValueError(f"TransformerConfig: the setting {missing[0]!r} is missing")
        return cls(**{**values, "kernel": _kernel_from(values.get("kernel", {}))})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _kernel_from(values: Any) -> AttentionKernel:
    try:
        return AttentionKernel(**values)
    except TypeError as error:
        raise ValueError(f"TransformerConfig: {values!r} does not describe an attention kernel") from error
