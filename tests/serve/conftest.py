from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def collect_garbage() -> Iterator[None]:
    """Here and not in somebody else's test, where a warning about an open socket is an error."""
    yield
    gc.collect()
