"""A decoding as text: a table by depth, spectra against 1/g, contributions by layer and word."""

import math
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import torch

from interp.decoding.exact import INPUT
from interp.decoding.result import Decoding
from interp.unrolling.tables import ABSENT, CELL, LABEL, WIDTH, coefficient_table, line

BINS = 5
ROWS = {
    "w_relative_error": "w against least squares",
    "inverse_hessian_relative_error": "inverse Hessian against G⁺",
    "agreement": "roads to w apart, at worst",
    "local_jacobian_against_unit_vectors": "w against unit vectors",
    "mixed_agreement": "∂w/∂y of the rule, at worst",
    "nonlinearity": "w, change nearby",
    "mixed_remainder": "∂w/∂y that is not s Aᵀ",
    "inverse_hessian_off_diagonal": "s that is no function of G",
    "step_undetermined": "next H⁻¹ undetermined, share",
}


def spectra(decoding: Decoding) -> list[dict[str, Any]]:
    """By bin of the eigenvalues of G, equally many in each, largest first: their range, and the medians of
    g s_l (1 where s_l = 1/g) by depth and of g H_l⁻¹ by layer, over the eigen-directions of all prompts."""
    hessian = decoding.hessian
    if hessian is None:
        return []
    g = hessian.g.flatten()
    order = g.nan_to_num(nan=-1).argsort(descending=True)[: int((~g.isnan()).sum())]
    found = []
    for chosen in order.tensor_split(min(BINS, len(order))):
        mine = g[chosen]
        done = (hessian.g * hessian.spectrum).flatten(1)[:, chosen]
        steps = (hessian.g * hessian.steps).flatten(1)[:, chosen]
        found.append(
            {
                "g": [mine.min().item(), mine.max().item()],
                "g_times_s": done.median(1).values.tolist(),
                "g_times_step": steps.nanmedian(1).values.tolist(),
            }
        )
    return found


def to_lines(decoding: Decoding) -> list[str]:
    """The text of a decoding."""
    return [
        f"decoded on {decoding.prompts} prompts, float64; {_about(decoding)}",
        f"roads to w: {', '.join(decoding.roads)}",
        *table({ROWS[key]: [entry.get(key) for entry in decoding.by_depth()] for key in ROWS}, "depth"),
        *_spectra_lines(decoding),
        *_closed_form_lines(decoding),
        "share of the prediction by layer and word, pooled over prompts (they sum to 1)",
        *coefficient_table(shown_shares(decoding), 3),
        *[text for what, why in decoding.undefined.items() for text in wrap(f"{what}: {why}", WIDTH)],
    ]


def shown_shares(decoding: Decoding) -> list[dict[str, float]]:
    """The shares, without the read-out of the input where it is 0 on all prompts."""
    shares = decoding.shares()
    if not decoding.contributions[0][INPUT].any():
        del shares[0][INPUT]
    return shares


def _about(decoding: Decoding) -> str:
    if decoding.is_linear:
        return "the read-out is linear in the query: one w for all queries"
    worst = decoding.nonlinearity.max().item()
    return (
        "the read-out is NOT linear in the query: w is local,\n"
        f"and changes by up to {worst:.2g} of itself within {decoding.radius:g} of the query's norm"
    )


def _spectra_lines(decoding: Decoding) -> list[str]:
    bins = spectra(decoding)
    if not bins:
        return []
    labels = [f"g in {_range(entry['g'])}" for entry in bins]
    done = {label: entry["g_times_s"] for label, entry in zip(labels, bins, strict=True)}
    steps = {label: entry["g_times_step"] for label, entry in zip(labels, bins, strict=True)}
    return [
        "spectrum of the inverse Hessian: g s_l, 1 where s_l = 1/g (medians over eigen-directions)",
        *table(done, "depth"),
        "spectrum of the step: g H_l⁻¹",
        *table(steps, "layer"),
    ]


def _closed_form_lines(decoding: Decoding) -> list[str]:
    found = decoding.closed_form
    if found is None:
        return []
    values = found.to_dict()
    return [
        "distance to the closed form of two words",
        *table({"w": values["w_relative_distance"], "s": values["s_relative_distance"]}, "depth"),
        f"  prediction, rms 99 %: {found.output.central_rms_relative_error:.3g}; "
        f"certificate of the two words: {found.core.central_rms_relative_error:.3g}, "
        f"of all words: {found.words.central_rms_relative_error:.3g}",
    ]


def _range(limits: Sequence[float]) -> str:
    return f"{limits[0]:.2g} … {limits[1]:.2g}"


def table(rows: Mapping[str, Sequence[float | None]], column: str) -> Iterator[str]:
    """Quantities down, depths or layers across; rows that hold nothing are left out."""
    held = {label: values for label, values in rows.items() if any(value is not None for value in values)}
    count, fitting = max(len(values) for values in rows.values()), (WIDTH - 2 - LABEL) // CELL
    for start in range(0, count, fitting):
        part = range(start, min(start + fitting, count))
        yield line("", [f"{column} {index}" for index in part])
        for label, values in held.items():
            yield line(label, [_shown(values[index]) for index in part])


def _shown(value: float | None) -> str:
    return ABSENT if value is None or math.isnan(value) else f"{value:.3g}"


def heat(decoding: Decoding, bins: int = 12) -> tuple[torch.Tensor, list[str]] | None:
    """Median |1 − g s_l| [bin, depth] with the bins' largest g, for a picture; None where there is no single G."""
    hessian = decoding.hessian
    if hessian is None:
        return None
    g = hessian.g.flatten()
    order = g.nan_to_num(nan=-1).argsort(descending=True)[: int((~g.isnan()).sum())]
    parts = order.tensor_split(min(bins, len(order)))
    left = hessian.r.abs().flatten(1)
    return torch.stack([left[:, part].median(1).values for part in parts]), [
        f"{g[part].median():.2g}" for part in parts
    ]
