import jaxtyping
import pytest


@pytest.fixture
def as_users_run(monkeypatch):
    """Without the annotations that are checked in tests only: what is wrong must be said by the code itself."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
