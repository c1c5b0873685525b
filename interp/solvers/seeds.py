"""Seeds of streams that have nothing in common."""

import numpy as np


def mixed(seed: int, *stream: int) -> int:
    """A seed for each stream (a step, a purpose) of a seed; seed + step would make neighbouring seeds share streams.

    Source: NumPy's SeedSequence, a hash of all of the numbers (O'Neill 2015).
    """
    return int(np.random.SeedSequence([seed % 2**64, *stream]).generate_state(1, np.uint64)[0])
