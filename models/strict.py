"""A `HookedRootModule` in which a hook name or a filter that matches nothing is an error.

TransformerLens runs the clean model when a filter matches nothing. Here every name must exist and every filter must
match, or a ValueError lists the names that exist.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformer_lens import ActivationCache
from transformer_lens.HookedRootModule import HookedRootModule

NamesFilter = str | Iterable[str] | Callable[[str], bool] | None
Hooks = Sequence[tuple[str | Callable[[str], bool], Callable[..., Any]]]


def is_hooked(*points: nn.Module) -> bool:
    """Does any hook, forward or backward, sit on one of these hook points."""
    for point in points:
        if point._forward_hooks or point._forward_pre_hooks or point._backward_hooks or point._backward_pre_hooks:
            return True
    return False


class StrictHookedModule(HookedRootModule):
    """Hooked runs as in TransformerLens, strict about names; `run_with_cache` returns an `ActivationCache`."""

    def match_names(self, names: NamesFilter) -> list[str]:
        """The hook points that a name, a list of names or a filter selects (None: all).

        Raises:
            ValueError: a name does not exist, or the filter or list selects nothing.
        """
        known = list(self.hook_dict)
        if names is None:
            return known
        chosen = [name for name in known if names(name)] if callable(names) else _as_list(names)
        missing = [name for name in chosen if name not in self.hook_dict]
        if missing:
            raise ValueError(f"the model has no hook point {missing[0]!r}; it has: {', '.join(known)}")
        if not chosen:
            raise ValueError(f"the filter given matches no hook point; the model has: {', '.join(known)}")
        return chosen

    def add_hook(self, name: Any, hook: Any, *args: Any, **kwargs: Any) -> None:
        self.match_names(name)
        super().add_hook(name, hook, *args, **kwargs)

    @contextmanager
    def hooks(self, fwd_hooks: Hooks = (), bwd_hooks: Hooks = (), *args: Any, **kwargs: Any) -> Iterator[Any]:
        for name, _ in (*fwd_hooks, *bwd_hooks):
            self.match_names(name)
        with super().hooks(list(fwd_hooks), list(bwd_hooks), *args, **kwargs) as hooked:
            yield hooked

    def add_caching_hooks(self, names_filter: NamesFilter = None, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        return super().add_caching_hooks(self.match_names(names_filter), *args, **kwargs)

    def get_caching_hooks(self, names_filter: NamesFilter = None, *args: Any, **kwargs: Any) -> tuple[dict, list, list]:
        return super().get_caching_hooks(self.match_names(names_filter), *args, **kwargs)

    def run_with_cache(
        self,
        tokens: Tensor,
        *args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Any]:
        """The output and an `ActivationCache` of the hook points that `names_filter` selects (all by default).

        Caching everything includes `hook_attn_scores` and `hook_pattern`, so it takes O(n²) memory.
        """
        if remove_batch_dim and len(tokens) != 1:
            raise ValueError(f"remove_batch_dim is for a batch of one prompt, and this one has {len(tokens)}")
        output, cache = super().run_with_cache(tokens, *args, remove_batch_dim=remove_batch_dim, **kwargs)
        if return_cache_object:
            return output, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)
        return output, cache


def _as_list(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
