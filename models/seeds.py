"""Seeds made of whole numbers: of a run, a purpose, a step."""

import numpy as np


def derived_seed(*path: int) -> int:
    """A seed that is a well-mixed function of whole numbers."""
    return int(np.random.SeedSequence(path).generate_state(1, np.uint32)[0])
