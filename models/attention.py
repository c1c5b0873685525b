"""Multi-head attention with a kernel and a visibility rule a head, hooked as in TransformerLens.

Two forms compute the same outputs: the pattern form, which hooks on `hook_attn_scores` and `hook_pattern` see and edit,
and for feature maps the O(n) sums of `models.linear_attention`. `Attention.forms_pattern` decides.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import FactoredMatrix
from transformer_lens.hook_points import HookPoint

from interp.layout import BlockLayout
from models import linear_attention
from models.components import bias, weight
from models.config import TransformerConfig
from models.strict import is_hooked

PerHead = Float[Tensor, "batch token head d_head"]
HeadFirst = Float[Tensor, "batch head token d_head"]


class Masks:
    """allowed[head, i, k] of the layout for a number of tokens; the last mask is kept.

    Not one made inside a transform of torch.func: it is a wrapper without storage, which no deepcopy takes.
    """

    def __init__(self, layout: BlockLayout, n_heads: int) -> None:
        self.layout, self.n_heads = layout, n_heads
        self.key: tuple[int, torch.device] | None = None
        self.mask = torch.empty(0)

    def __call__(self, n_tokens: int, device: torch.device) -> Bool[Tensor, "head token token"]:
        if self.key != (n_tokens, device):
            mask = self.layout.allowed(n_tokens, self.n_heads).to(device)
            if torch._C._functorch.is_functorch_wrapped_tensor(mask):  # pyright: ignore[reportAttributeAccessIssue]
                return mask
            self.key, self.mask = (n_tokens, device), mask
        return self.mask


class Attention(nn.Module):
    """z_i ↦ Σ_h (Σ_k pattern_h[i, k] v_k) W_O^h + b_O.

    Weights as in TransformerLens: W_Q, W_K, W_V [head, d_model, d_head], W_O [head, d_head, d_model]; b_Q, b_K, b_V
    [head, d_head] and b_O [d_model], or None where the config has no biases; W_F [head, d_head, d_feature] and b_F
    [head, d_feature] of the learned feature map φ(u) = elu(u W_F + b_F) + 1.
    """

    b_Q: nn.Parameter | None
    b_K: nn.Parameter | None
    b_V: nn.Parameter | None
    b_O: nn.Parameter | None

    def __init__(self, cfg: TransformerConfig, layout: BlockLayout, masks: Masks) -> None:
        super().__init__()
        self.cfg, self.layout, self.masks = cfg, layout, masks
        self.visibility = layout.head_visibility(cfg.n_heads)
        self.one_rule = len(set(self.visibility)) == 1
        self.blind_rows = any(rule.leaves_rows_blind for rule in self.visibility)
        heads, d_model, d_head = cfg.n_heads, cfg.d_model, cfg.d_head
        self.W_Q, self.W_K, self.W_V = (weight(heads, d_model, d_head) for _ in range(3))
        self.W_O = weight(heads, d_head, d_model)
        for name, shape in {
            "b_Q": (heads, d_head),
            "b_K": (heads, d_head),
            "b_V": (heads, d_head),
            "b_O": (d_model,),
        }.items():
            self.register_parameter(name, bias(*shape) if cfg.use_biases else None)
        if cfg.d_feature is not None:
            self.W_F, self.b_F = weight(heads, d_head, cfg.d_feature), bias(heads, cfg.d_feature)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()  # [batch, token, head, d_head]
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()  # [batch, head, query, key]
        self.hook_z = HookPoint()  # [batch, token, head, d_head]

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_Kᵀ of every head, [head, d_model, d_model]."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head, [head, d_model, d_model]."""
        return FactoredMatrix(self.W_V, self.W_O)

    def forward(self, z: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        q = self.hook_q(project(z, self.W_Q, self.b_Q)).transpose(1, 2)
        k = self.hook_k(project(z, self.W_K, self.b_K)).transpose(1, 2)
        v = self.hook_v(project(z, self.W_V, self.b_V)).transpose(1, 2)
        mixed = self._by_pattern(q, k, v) if self.forms_pattern() else self._by_sums(q, k, v)
        mixed = self.hook_z(mixed.transpose(1, 2))
        return functional.linear(mixed.flatten(-2), self.W_O.flatten(0, 1).T, self.b_O)

    def forms_pattern(self) -> bool:
        """Is the pattern formed: for score functions always, for feature maps when a hook asks for it."""
        return not self.cfg.kernel.is_feature_map or is_hooked(self.hook_attn_scores, self.hook_pattern)

    def learned_features(self, u: HeadFirst) -> Float[Tensor, "batch head token d_feature"]:
        """φ(u) = elu(u W_F + b_F) + 1, positive."""
        return functional.elu(u @ self.W_F + self.b_F[:, None]) + 1

    def _by_pattern(self, q: HeadFirst, k: HeadFirst, v: HeadFirst) -> HeadFirst:
        kernel, n_tokens = self.cfg.kernel, q.shape[-2]
        scores = kernel.scores(q, k, self.layout.n_context(n_tokens), self.learned_features)
        scores = self.hook_attn_scores(scores)
        pattern = self.hook_pattern(kernel.pattern(scores, self.masks(n_tokens, q.device), self.blind_rows))
        return pattern @ v

    def _by_sums(self, q: HeadFirst, k: HeadFirst, v: HeadFirst) -> HeadFirst:
        kernel, n_context = self.cfg.kernel, self.layout.n_context(q.shape[-2])
        phi = kernel.feature_map(self.learned_features)
        features_q, features_k = phi(q), phi(k)
        if kernel.scale != "none":
            features_q = kernel.scale_factor(q.shape[-1], n_context) * features_q
        attend = linear_attention.attend_normalised if kernel.normalisation == "sum" else linear_attention.attend
        if self.one_rule:
            return attend(features_q, features_k, v, self.visibility[0], n_context, self.layout.machines)
        heads = zip(features_q.unbind(1), features_k.unbind(1), v.unbind(1), self.visibility, strict=True)
        return torch.stack([attend(*head, n_context, self.layout.machines) for head in heads], dim=1)


def project(
    z: Float[Tensor, "batch token d_model"], W: Float[Tensor, "head d_model d_head"], b: Tensor | None
) -> PerHead:
    """z W + b of every head."""
    flat = functional.linear(z, W.mT.flatten(0, 1), None if b is None else b.flatten())
    return flat.unflatten(-1, (W.shape[0], W.shape[-1]))
