"""The processes that the runtime's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four gloo ranks that live as long as the test session."""
    running = Cluster()
    yield running
    running.close()
