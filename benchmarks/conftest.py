import pytest
import torch

from benchmarks.paired import keep_freed_memory


@pytest.fixture(autouse=True, scope="session")
def quiet() -> None:
    """One thread, and no page faults of memory that was freed a moment ago."""
    torch.set_num_threads(1)
    keep_freed_memory()
