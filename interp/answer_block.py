"""Layouts in which chosen columns are the answer, and the names of columns."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from interp.layout import BlockLayout

ANSWER = "answer"


def column_names(width: int, layout: BlockLayout | None) -> list[str]:
    """ "column 3", or with a layout "y" and "position[5]"."""
    if layout is None:
        return [f"column {i}" for i in range(width)]
    return [name if size == 1 else f"{name}[{i}]" for name, size in layout.widths.items() for i in range(size)]


def with_readout(layout: BlockLayout, columns: Sequence[int], sign: float) -> BlockLayout:
    """The layout that reads these coordinates, in this order, with this sign.

    Where they are no block already they become one, `answer`, and the blocks that held them keep the rest.
    """
    own = next((name for name, at in layout.slices.items() if list(range(at.start, at.stop)) == list(columns)), None)
    if own is not None:
        return replace(layout, readout=own, sign=float(sign), symmetry=_beside(layout, own))
    basis, blocks = layout.basis, dict[str, Tensor]()
    for name, at in layout.slices.items():
        kept = [i for i in range(at.start, at.stop) if i not in columns]
        if kept:
            blocks[name] = basis[:, kept]
    if ANSWER in blocks:
        raise ValueError(f"find_readout: the layout has a block {ANSWER!r} already, which is not the one found")
    symmetry = {
        name: partner
        for name, partner in layout.symmetry.items()
        if {name, partner} <= set(blocks) - _cut(layout, blocks)
    }
    if layout.readout in blocks and blocks[layout.readout].shape[1] == len(columns):
        symmetry[ANSWER] = layout.rotates_with(layout.readout)
    blocks[ANSWER] = basis[:, list(columns)]
    return replace(layout, columns=blocks, readout=ANSWER, sign=float(sign), symmetry=symmetry)


def _beside(layout: BlockLayout, own: str) -> dict[str, str]:
    """The symmetry with an answer that was a block of its own: it rotates with the one read before, if of its width."""
    before = layout.readout
    alone = own != before and own not in {*layout.symmetry, *layout.symmetry.values()}
    if not alone or layout.widths[own] != layout.widths[before]:
        return dict(layout.symmetry)
    return {**layout.symmetry, own: layout.rotates_with(before)}


def _cut(layout: BlockLayout, blocks: dict[str, Tensor]) -> set[str]:
    """Blocks that lost columns."""
    return {name for name, basis in blocks.items() if basis.shape[1] != layout.widths[name]}
