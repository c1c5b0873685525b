"""The alphabet: every rotation-equivariant update of one layer, and the projection of a layer on it.

If a rule commutes with the rotations of each column block, its tensor T[a,b,c,j] is a combination of pairings of the
four indices, where only blocks of equal symmetry pair (MATH §3):

    z_P S_QR → S     pairs a with b and c with j (symmetrised in b, c)
    tr(S_QR) z_P → S     pairs b with c and a with j

With blocks x and y these are the eight words of the literature; more blocks give more words by the same rule. Words
that coincide (blocks of width 1) are listed once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from interp.layout import BlockLayout
from interp.unrolling.circuits import Group

CHUNK = 2**22  # entries of T that are held at a time
DENSE_WIDTH = 48  # columns up to which T is formed, slab by slab


@dataclass(frozen=True, order=True)
class Word:
    """One equivariant term: row block `row`, second-moment block S[left, right], written `into` a block."""

    row: str
    left: str
    right: str
    into: str
    trace: bool = False

    def text(self, symbol: str = "S") -> str:
        """The word, with the symbol of the second moment; blocks of longer names are separated by a comma."""
        comma = "" if len(self.left) == len(self.right) == 1 else ","
        moment = f"{symbol}_{self.left}{comma}{self.right}"
        return f"{f'tr({moment}) z_{self.row}' if self.trace else f'z_{self.row} {moment}'} → {self.into}"

    def __str__(self) -> str:
        return self.text()

    def apply(self, row: Float[Tensor, "batch token row"], moment: Tensor) -> Float[Tensor, "batch token into"]:
        """The term for the rows' own block and S[left, right] of each, [batch, token or 1, left, right]."""
        if self.trace:
            return row * moment.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
        if moment.shape[-3] == 1:
            return row @ moment.squeeze(-3)
        return (row.unsqueeze(-2) @ moment).squeeze(-2)

    def pairings(self) -> list[tuple[str, str, str, str, str]]:
        """The word as the mean of two products of Kronecker deltas: blocks of a, b, c, j and the partner of a."""
        if self.trace:
            return [
                (self.row, self.left, self.right, self.into, "j"),
                (self.row, self.right, self.left, self.into, "j"),
            ]
        return [(self.row, self.left, self.right, self.into, "b"), (self.row, self.right, self.left, self.into, "c")]


def alphabet(layout: BlockLayout) -> list[Word]:
    """All words of a layout, each once; blocks of one `layout.symmetry` pair with one another."""
    kind = {name: layout.rotates_with(name) for name in layout.columns}
    names = list(layout.columns)
    same = [(p, q) for p, q in product(names, names) if kind[p] == kind[q]]
    words = [Word(p, q, r, s) for (r, s), (p, q) in product(same, same)]
    words += [
        Word(p, q, r, s, trace=True) for (p, s), (q, r) in product(same, same) if names.index(q) <= names.index(r)
    ]
    return _independent(
        sorted(words, key=lambda w: (names.index(w.into), w.trace, *map(names.index, (w.row, w.left, w.right)))),
        layout.widths,
    )


def _independent(words: Sequence[Word], widths: Mapping[str, int]) -> list[Word]:
    """The words that are no combination of those before them."""
    kept: list[Word] = []
    for word in words:
        products = inner_products([*kept, word], widths)
        if torch.linalg.matrix_rank(products, hermitian=True) == len(kept) + 1:
            kept.append(word)
    return kept


def inner_products(words: Sequence[Word], widths: Mapping[str, int]) -> Float[Tensor, "word word"]:
    """Inner products of the words as tensors. Two pairings of the same indices meet in two loops or in one."""

    def inner(first: Word, second: Word) -> float:
        total = 0.0
        for (*blocks, partner), (*others, mate) in product(first.pairings(), second.pairings()):
            if blocks == others:
                a, b, c, _ = (widths[block] for block in blocks)
                total += a * (c if partner == "b" else b) / 4 if partner == mate else a / 4
        return total

    products = [inner(first, second) for first, second in product(words, words)]
    return torch.tensor(products, dtype=torch.float64).reshape(len(words), len(words))


def project(group: Group, words: Sequence[Word], layout: BlockLayout) -> Float[Tensor, "word"]:
    """Least-squares coefficients of the group's symmetrised tensor on the words."""
    if not words:
        return torch.zeros(0, dtype=torch.float64)
    overlap = torch.stack([_overlap(group, word, layout.slices) for word in words])
    return torch.linalg.solve(inner_products(words, layout.widths), overlap)


def reproject(
    coefficients: Mapping[Word, float], kept: Collection[Word], widths: Mapping[str, int]
) -> dict[Word, float]:
    """Least squares on a subset, from that on all words, whose residual is orthogonal to every word."""
    words = list(coefficients)
    gram = inner_products(words, widths)
    overlap = gram @ torch.tensor(list(coefficients.values()), dtype=torch.float64)
    index = [i for i, word in enumerate(words) if word in kept]
    solution = torch.linalg.solve(gram[index][:, index], overlap[index])
    return dict(zip((words[i] for i in index), solution.tolist(), strict=True))


def _overlap(group: Group, word: Word, at: Mapping[str, slice]) -> Float[Tensor, ""]:
    """⟨word, T⟩ without forming T: products of traces of the blocks of Q and V."""
    total = torch.zeros((), dtype=torch.float64)
    for a, b, c, j, partner in word.pairings():
        Q, V = group.Q[:, at[a], at[b]], group.V[:, at[c], at[j]]
        contraction = {"b": "haa,hcc->", "c": "hab,hab->", "j": "hab,hba->"}[partner]
        total = total + torch.einsum(contraction, Q, V) / 2
    return total


@dataclass(frozen=True)
class WeightFit:
    """How much of a tensor the words explain: ‖T‖ and ‖T − Σ c w‖ over the entries that can act."""

    norm: float
    residual: float

    @property
    def explained(self) -> float:
        """1 − residual² / norm²; 1 for a tensor that vanishes."""
        return 1 - (self.residual / self.norm) ** 2 if self.norm else 1.0


def share_of(
    coefficients: Mapping[Word, float], fit: WeightFit, kept: Collection[Word], widths: Mapping[str, int]
) -> float:
    """Share of the squared weight norm that a subset explains, given the least squares on all words and its fit."""
    words = list(coefficients)
    subset = reproject(coefficients, kept, widths)
    lost = torch.tensor([coefficients[word] - subset.get(word, 0.0) for word in words], dtype=torch.float64)
    residual = fit.residual**2 + (lost @ inner_products(words, widths) @ lost).item()
    return 1 - residual / fit.norm**2 if fit.norm else 1.0


def weight_fit(
    group: Group, words: Sequence[Word], coefficients: Float[Tensor, " word"], layout: BlockLayout, into: Sequence[str]
) -> WeightFit:
    """Norm and residual of the symmetrised tensor, over the columns of the blocks `into`.

    Up to `DENSE_WIDTH` columns by subtracting the words from the tensor; beyond, where it has D⁴ entries, from inner
    products, which resolves relative residuals down to 1e-8.
    """
    size = layout.d_model
    live = torch.cat(
        [torch.arange(size)[layout.slices[name]] for name in layout.columns if name in into] or [torch.arange(0)]
    )
    if size > DENSE_WIDTH:
        return _weight_fit_by_products(group, words, coefficients, layout, live)
    norm = residual = 0.0
    for rows in torch.arange(size).split(max(1, CHUNK // size**3)):
        full = torch.einsum("hab,hcj->abcj", group.Q[:, rows], group.V)
        T = (full + full.transpose(1, 2)) / 2
        norm += T[..., live].square().sum().item()
        for word, coefficient in zip(words, coefficients, strict=True):
            _subtract(T, word, coefficient, layout.slices, rows)
        residual += T[..., live].square().sum().item()
    return WeightFit(norm**0.5, residual**0.5)


def _weight_fit_by_products(
    group: Group, words: Sequence[Word], coefficients: Tensor, layout: BlockLayout, live: Tensor
) -> WeightFit:
    """‖sym T‖² = ½ Σ_hg (⟨Q_h, Q_g⟩⟨V_h, V_g⟩ + ⟨Q_hᵀQ_g, V_h V_gᵀ⟩), and the residual by Pythagoras."""
    Q, V = group.Q, group.V[..., live]
    straight = torch.einsum("hab,gab->hg", Q, Q) * torch.einsum("hcj,gcj->hg", V, V)
    crossed = torch.einsum("hab,gac,hcj,gbj->hg", Q, Q, V, V)
    norm = ((straight + crossed).sum() / 2).item()
    explained = (coefficients @ inner_products(words, layout.widths) @ coefficients).item() if words else 0.0
    return WeightFit(max(norm, 0.0) ** 0.5, max(norm - explained, 0.0) ** 0.5)


def _subtract(T: Tensor, word: Word, coefficient: Tensor, at: Mapping[str, slice], rows: Tensor) -> None:
    """T[rows] −= coefficient · word, at the entries where the word's deltas are one."""
    for *blocks, partner in word.pairings():
        start = {letter: at[block].start for letter, block in zip("abcj", blocks, strict=True)}
        width = {letter: at[block].stop - at[block].start for letter, block in zip("abcj", blocks, strict=True)}
        rest = [letter for letter in "bcj" if letter != partner]
        first, second = torch.meshgrid(torch.arange(width["a"]), torch.arange(width[rest[0]]), indexing="ij")
        offset = {"a": first, partner: first, rest[0]: second, rest[1]: second}
        a, b, c, j = (start[letter] + offset[letter].flatten() for letter in "abcj")
        inside = (a >= rows[0]) & (a <= rows[-1])
        values = -coefficient.expand(int(inside.sum())) / 2
        T.index_put_((a[inside] - rows[0], b[inside], c[inside], j[inside]), values, accumulate=True)
